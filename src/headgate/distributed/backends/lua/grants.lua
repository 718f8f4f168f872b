-- What distributed/grants.py does, to the letter. Each function gives how long to wait, and for what.

local function numbers_of(cost)
  return math.max(1, math.ceil(cost.requests or 1))
end

local function short_of(cost, now)
  local longest, of = 0, ''
  for _, limit in ipairs(state.limits) do
    local amount = cost[limit[NAME]] or 0
    if amount > 0 then
      local wait = ready_at(limit, amount, now) - now
      if wait > math.max(INSTANT, longest) then
        longest, of = wait, limit[NAME]
      end
    end
  end
  return longest, of
end

local function fit(member, room, now)
  local limited = #state.limits > 0
  if state.cap == NO_CAP and not limited then
    return room, 0, ''
  end
  local since = member[HUNGRY_AT] ~= 0 and member[HUNGRY_AT] or now
  local ahead, flying = 0, 0
  for _, other in pairs(state.seats) do
    if 0 < other[HUNGRY_AT] and other[HUNGRY_AT] < since and now - other[SEEN] <= HUNGRY then
      ahead = ahead + 1
    end
    if now - other[SEEN] <= TERM then
      flying = flying + other[FLYING]
    end
  end
  if ahead > 0 then
    return 0, math.min(AGAIN * (1 + ahead), HUNGRY / 2), 'turn'
  end
  if state.cap ~= NO_CAP then
    local free = math.floor(math.max(1, state.cap)) - flying
    if free < 1 then
      return 0, AGAIN, 'depth'
    end
    room = math.min(room, math.max(free, numbers_of(request.asks[1][2])))
  end
  if not limited then
    return room, 0, ''
  end
  local granted = 0
  room = math.min(room, MOST_AT_ONCE)
  for _, ask in ipairs(request.asks) do
    for _ = 1, ask[1] do
      local numbers = numbers_of(ask[2])
      if granted > 0 and granted + numbers > room then
        return granted, 0, ''
      end
      local wait, of = short_of(ask[2], now)
      if of ~= '' then
        return granted, wait, of
      end
      granted = granted + numbers
      local ahead_of_line = math.max(0, state.issued + granted - state.line)
      local starts_at = math.max(now, state.hold_until) + ahead_of_line / pace()
      for _, limit in ipairs(state.limits) do
        local amount = ask[2][limit[NAME]] or 0
        if amount > 0 then
          take(limit, amount, now, starts_at)
        end
      end
    end
  end
  return granted, 0, ''
end

local function not_yet(member, now)
  for _, other in pairs(state.seats) do
    if other[SOLO] and other ~= member and now - other[SEEN] <= SOLO_HEARS + other[SPAN] then
      return AGAIN, 'solo'
    end
  end
  if state.circuit_open then
    if now < state.open_until then
      return state.open_until - now, 'circuit'
    end
    if #state.probes >= state.most_probes then
      return AGAIN, 'circuit'
    end
    return 0, ''
  end
  if member[ERA] == state.era and member[FIRST] > state.line then
    return math.max(0, state.hold_until - now) + (member[FIRST] - state.line) / pace(), 'pace'
  end
  if state.issued - state.line > FURTHEST * pace() + 2 * members_at(now) then
    return PERIOD, 'pace'
  end
  return 0, ''
end

local function lease_length(now)
  local asking, span = 0, PERIOD
  for _, other in pairs(state.seats) do
    if now - other[ASKED] <= ASKING + other[SPAN] then
      asking, span = asking + 1, math.max(span, other[SPAN])
    end
  end
  return math.ceil(pace() * span / asking)
end

local function grant(member, now)
  local wanted = 0
  for _, ask in ipairs(request.asks) do
    wanted = wanted + ask[1] * numbers_of(ask[2])
  end
  if request.leaves then
    member[ASKED] = -ASKING
  end
  if wanted == 0 or request.leaves then
    member[HUNGRY_AT] = 0
    return 0, ''
  end
  member[ASKED] = now
  local wait, of = not_yet(member, now)
  if of ~= '' then
    return wait, of
  end
  local first_call = numbers_of(request.asks[1][2])
  local room = state.circuit_open and first_call or math.max(first_call, lease_length(now))
  local granted
  granted, wait, of = fit(member, math.min(wanted, room), now)
  if of == '' then
    member[HUNGRY_AT] = 0
  elseif member[HUNGRY_AT] == 0 or granted > 0 then
    member[HUNGRY_AT] = now
  end
  if granted > 0 then
    member[GRANTED_TO], member[GRANTED], member[FIRST], member[ERA] = request.number, granted, state.issued, state.era
    member[PROBE] = state.circuit_open
    member[FLYING] = member[FLYING] + granted
    state.issued = state.issued + granted
    if state.circuit_open then
      state.probes[#state.probes + 1] = {request.member, now}
    end
  end
  return wait, of
end
