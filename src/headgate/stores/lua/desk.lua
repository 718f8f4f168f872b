-- What core/sharing/desk.py does, to the letter and in its order, on plain tables. Read that file for the why.
-- One script with places.lua and allowance.lua in front of it, granting.lua and visit.lua behind it.

local visit = cjson.decode(ARGV[1])
local terms_text, note, learned = ARGV[2], ARGV[3], ARGV[4]
local published = visit.publication
local time = redis.call('TIME')
local clock = tonumber(time[1]) + tonumber(time[2]) / 1e6
local wall = clock

local desk

local function agree()
  local terms = cjson.decode(terms_text)
  local before = desk.limits
  desk.terms_text = terms_text
  desk.start, desk.burst, desk.most = terms.rate, terms.burst, terms.most
  desk.most_probes, desk.probe_for = terms.probes, terms.probe_for
  desk.limits = {}
  for place, known in ipairs(terms.limits) do
    local name, amount, window, burst = unpack(known)
    local limit = {name, amount, window, burst, burst, desk.at, {}}
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
    desk.limits[place] = limit
  end
end

local function open_desk()
  local packed = redis.call('HGET', KEYS[1], 'desk')
  if packed then
    desk = cmsgpack.unpack(packed)
    return
  end
  desk = {
    seats = {}, skew = 0, at = clock, issued = 0, era = math.floor(1000 * clock), hold_until = 0, cap = NO_CAP,
    circuit_open = false, open_until = 0, probes = {}, leader = '', fence = math.floor(1000 * clock),
    has_learned = false, saved_wall = 0, noted = 0, covers = 0, word = 0, limits = {},
  }
  agree()
  desk.line, desk.rate = desk.burst, desk.start
end

local function corrected_time()
  local at = clock + desk.skew
  local seat = desk.seats[visit.member]
  if seat and visit.elapsed > 0 and visit.elapsed < at - seat[SEEN] - CLOCK_JUMP then
    at = seat[SEEN] + visit.elapsed
  end
  at = math.max(at, desk.at)
  desk.skew = at - clock
  return at
end

local function seen_at(member)
  local seat = desk.seats[member]
  return seat and seat[SEEN] or -LIVE
end

local function keep_probes(is_kept)
  local kept = {}
  for _, probe in ipairs(desk.probes) do
    if is_kept(probe[1], probe[2]) then
      kept[#kept + 1] = probe
    end
  end
  desk.probes = kept
end

local function see_off(now)
  for member, seat in pairs(desk.seats) do
    if now - seat[SEEN] > KEPT then
      desk.seats[member] = nil
    end
  end
  keep_probes(function(member, since)
    return now - since <= desk.probe_for and now - seen_at(member) <= TERM
  end)
  if next(desk.seats) == nil and desk.has_learned and wall - desk.saved_wall > REMEMBERED then
    desk.rate, desk.cap, desk.circuit_open, desk.has_learned = desk.start, NO_CAP, false, false
  end
end

local function seat_of(member, now)
  local seat = desk.seats[member]
  if seat then
    return seat
  end
  local count, oldest, seen = 0, nil, nil
  for other, its in pairs(desk.seats) do
    count = count + 1
    if not oldest or its[SEEN] < seen or (its[SEEN] == seen and other < oldest) then
      oldest, seen = other, its[SEEN]
    end
  end
  if count >= MOST_MEMBERS then
    desk.seats[oldest] = nil
  end
  seat = {now, 0, 0, 0, 0, 0, false, 0, false, -ASKING, 0, 0, false}
  desk.seats[member] = seat
  return seat
end

local function members_at(now)
  local count = 0
  for _, seat in pairs(desk.seats) do
    if not seat[GONE] and now - seat[SEEN] <= LIVE then
      count = count + 1
    end
  end
  return count
end

local function leads(now)
  if visit.leaves then
    if desk.leader == visit.member then
      desk.leader = ''
    end
    return false
  end
  if desk.leader == visit.member then
    return true
  end
  local at_work = #visit.asks > 0 or note ~= '' or visit.flying ~= 0
  local silent_for = now - seen_at(desk.leader)
  if desk.seats[desk.leader] then
    silent_for = silent_for - desk.seats[desk.leader][SPAN]
  end
  if silent_for > LIVE or (silent_for > LEADER_SILENT and at_work) then
    desk.leader = visit.member
    desk.fence = desk.fence + 1
    return true
  end
  return false
end

local function pace()
  return math.max(LEAST_PACE, math.min(desk.rate, desk.most))
end

-- How far the line may reach by growing or by what comes back.
local function furthest_line()
  return math.max(desk.line, desk.issued + desk.burst)
end

local function grow(now)
  local since = math.max(desk.at, desk.hold_until)
  if now > since then
    desk.line = math.min(desk.line + (now - since) * pace(), furthest_line())
  end
  desk.at = now
end

-- ---------------------------------------------------------------- news

local function void()
  desk.era = desk.era + 1
  desk.line = desk.issued
end

local function hold(until_at, now)
  if until_at > math.max(now, desk.hold_until) then
    if now >= desk.hold_until then
      void()
    end
    desk.hold_until = until_at
  end
end

local function pass_on(back, seat)
  local still_good = desk.burst + STILL_GOOD * pace()
  local count = math.min(back, seat[FIRST] + seat[GRANTED] - desk.line + still_good)
  if count > 0 then
    desk.line = math.min(desk.line + count, furthest_line())
  end
  if back >= seat[GRANTED] then
    seat[ERA] = 0
  end
end

-- Gives the note as it is kept: its number, when it came, how long the member's name is, that name, and the text.
local function hear(seat, now)
  seat[FLYING] = visit.leaves and 0 or visit.flying
  if visit.taken > 0 then
    desk.issued = desk.issued + visit.taken
    desk.line = math.max(desk.line, desk.issued - desk.burst)
  end
  if visit.back > 0 and visit.era == desk.era then
    pass_on(visit.back, seat)
  end
  for _, limit in ipairs(desk.limits) do
    local amount = visit.refund[limit[NAME]]
    if amount then
      give_back(limit, amount, now - visit.refund_ago, now)
    end
    local apart = visit.apart[limit[NAME]]
    if apart and limit[WINDOW] >= LONG_WINDOW then
      take(limit, apart, now, now)
    end
  end
  if visit.probe_over or visit.leaves then
    keep_probes(function(member) return member ~= visit.member end)
  end
  if visit.rest > 0 then
    hold(now + visit.rest, now)
  end
  if note == '' then
    return nil
  end
  desk.noted = desk.noted + 1
  desk.covers = math.max(desk.covers, desk.noted - MOST_NOTES)
  return string.format('%.0f %.17g %d ', desk.noted, now, #visit.member) .. visit.member .. note
end

local function publish(now)
  desk.rate, desk.cap, desk.word = published.rate, published.cap, published.word
  hold(now + published.hold, now)
  if published.skip > 0 then
    desk.line = math.min(desk.line, desk.issued + 1 - published.skip)
  end
  local open, open_for = published.circuit_open, published.open_for
  local opens = open and open_for > 0 and now + open_for > desk.open_until + OPENS_ANEW
  if opens or not open then
    desk.probes = {}
    desk.open_until = now + open_for
  end
  if opens or (open and not desk.circuit_open) then
    void()
  end
  desk.circuit_open = open
  if learned ~= '' then
    desk.has_learned, desk.saved_wall = true, wall
    desk.covers = math.max(desk.covers, published.covers)
  end
end
