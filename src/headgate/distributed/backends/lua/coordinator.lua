-- What distributed/coordinator.py does, to the letter and in its order, on plain tables. Read that file for the why.
-- One script with fields.lua and shared_quota.lua in front of it, grants.lua and sync.lua behind it.

local request = cjson.decode(ARGV[1])
local terms_text, note, learned = ARGV[2], ARGV[3], ARGV[4]
local published = request.publication
local time = redis.call('TIME')
local clock = tonumber(time[1]) + tonumber(time[2]) / 1e6
local wall = clock

local state

local function agree()
  local terms = cjson.decode(terms_text)
  local before = state.limits
  state.terms_text = terms_text
  state.start, state.burst, state.most = terms.rate, terms.burst, terms.most
  state.most_probes, state.probe_for = terms.probes, terms.probe_for
  state.limits = {}
  for place, known in ipairs(terms.limits) do
    local name, amount, window, burst = unpack(known)
    local limit = {name, amount, window, burst, burst, state.at, {}}
    local same
    for _, one in ipairs(before) do
      local is_same, is_longer = one[WINDOW] == window, same and one[WINDOW] > same[WINDOW]
      if one[NAME] == name and (not same or (same[WINDOW] ~= window and (is_same or is_longer))) then
        same = one
      end
    end
    if same then
      go_on_from(limit, same)
    end
    state.limits[place] = limit
  end
end

local function load_state()
  local packed = redis.call('HGET', KEYS[1], 'desk')
  if packed then
    state = cmsgpack.unpack(packed)
    return
  end
  state = {
    seats = {}, skew = 0, at = clock, issued = 0, era = math.floor(1000 * clock), hold_until = 0, cap = NO_CAP,
    circuit_open = false, open_until = 0, probes = {}, leader = '', fence = math.floor(1000 * clock),
    has_learned = false, saved_wall = 0, noted = 0, covers = 0, word = 0, limits = {},
  }
  agree()
  state.line, state.rate = state.burst, state.start
end

local function corrected_time()
  local at = clock + state.skew
  local member = state.seats[request.member]
  if member and request.elapsed > 0 and request.elapsed < at - member[SEEN] - CLOCK_JUMP then
    at = member[SEEN] + request.elapsed
  end
  at = math.max(at, state.at)
  state.skew = at - clock
  return at
end

local function seen_at(name)
  local member = state.seats[name]
  return member and member[SEEN] or -LIVE
end

local function keep_probes(is_kept)
  local kept = {}
  for _, probe in ipairs(state.probes) do
    if is_kept(probe[1], probe[2]) then
      kept[#kept + 1] = probe
    end
  end
  state.probes = kept
end

local function see_off(now)
  for name, member in pairs(state.seats) do
    if now - member[SEEN] > KEPT then
      state.seats[name] = nil
    end
  end
  keep_probes(function(name, since)
    return now - since <= state.probe_for and now - seen_at(name) <= TERM
  end)
  if next(state.seats) == nil and state.has_learned and wall - state.saved_wall > REMEMBERED then
    state.rate, state.cap, state.circuit_open, state.has_learned = state.start, NO_CAP, false, false
  end
end

local function member_of(name, now)
  local member = state.seats[name]
  if member then
    return member
  end
  local count, oldest, seen = 0, nil, nil
  for other, its in pairs(state.seats) do
    count = count + 1
    if not oldest or its[SEEN] < seen or (its[SEEN] == seen and other < oldest) then
      oldest, seen = other, its[SEEN]
    end
  end
  if count >= MOST_MEMBERS then
    state.seats[oldest] = nil
  end
  member = {now, 0, 0, 0, 0, 0, false, 0, false, -ASKING, 0, 0, false}
  state.seats[name] = member
  return member
end

local function members_at(now)
  local count = 0
  for _, member in pairs(state.seats) do
    if not member[GONE] and now - member[SEEN] <= LIVE then
      count = count + 1
    end
  end
  return count
end

local function leads(now)
  if request.leaves then
    if state.leader == request.member then
      state.leader = ''
    end
    return false
  end
  if state.leader == request.member then
    return true
  end
  local at_work = #request.asks > 0 or note ~= '' or request.flying ~= 0
  local silent_for = now - seen_at(state.leader)
  if state.seats[state.leader] then
    silent_for = silent_for - state.seats[state.leader][SPAN]
  end
  if silent_for > LIVE or (silent_for > LEADER_SILENT and at_work) then
    state.leader = request.member
    state.fence = state.fence + 1
    return true
  end
  return false
end

local function pace()
  return math.max(LEAST_PACE, math.min(state.rate, state.most))
end

-- How far the line may reach by growing or by what comes back.
local function furthest_line()
  return math.max(state.line, state.issued + state.burst)
end

local function grow(now)
  local since = math.max(state.at, state.hold_until)
  if now > since then
    state.line = math.min(state.line + (now - since) * pace(), furthest_line())
  end
  state.at = now
end

-- ---------------------------------------------------------------- news

local function void()
  state.era = state.era + 1
  state.line = state.issued
end

local function hold(until_at, now)
  if until_at > math.max(now, state.hold_until) then
    if now >= state.hold_until then
      void()
    end
    state.hold_until = until_at
  end
end

local function pass_on(back, member)
  local still_good = state.burst + STILL_GOOD * pace()
  local count = math.min(back, member[FIRST] + member[GRANTED] - state.line + still_good)
  if count > 0 then
    state.line = math.min(state.line + count, furthest_line())
  end
  if back >= member[GRANTED] then
    member[ERA] = 0
  end
end

-- Gives the note as it is kept: its number, when it came, how long the member's name is, that name, and the text.
local function apply_report(member, now)
  member[FLYING] = request.leaves and 0 or request.flying
  if request.taken > 0 then
    state.issued = state.issued + request.taken
    state.line = math.max(state.line, state.issued - state.burst)
  end
  if request.back > 0 and request.era == state.era then
    pass_on(request.back, member)
  end
  for _, limit in ipairs(state.limits) do
    local amount = request.refund[limit[NAME]]
    if amount then
      give_back(limit, amount, now - request.refund_ago, now)
    end
    local apart = request.apart[limit[NAME]]
    if apart and limit[WINDOW] >= LONG_WINDOW then
      take(limit, apart, now, now)
    end
  end
  if request.probe_over or request.leaves then
    keep_probes(function(name) return name ~= request.member end)
  end
  if request.rest > 0 then
    hold(now + request.rest, now)
  end
  if note == '' then
    return nil
  end
  state.noted = state.noted + 1
  state.covers = math.max(state.covers, state.noted - MOST_NOTES)
  return string.format('%.0f %.17g %d ', state.noted, now, #request.member) .. request.member .. note
end

local function publish(now)
  state.rate, state.cap, state.word = published.rate, published.cap, published.word
  hold(now + published.hold, now)
  if published.skip > 0 then
    state.line = math.min(state.line, state.issued + 1 - published.skip)
  end
  local open, open_for = published.circuit_open, published.open_for
  local opens = open and open_for > 0 and now + open_for > state.open_until + REOPENS_AFTER
  if opens or not open then
    state.probes = {}
    state.open_until = now + open_for
  end
  if opens or (open and not state.circuit_open) then
    void()
  end
  state.circuit_open = open
  if learned ~= '' then
    state.has_learned, state.saved_wall = true, wall
    state.covers = math.max(state.covers, published.covers)
  end
end
