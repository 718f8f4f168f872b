--[[
One visit to a desk, as one script: what core/sharing/desk.py does, for members on many machines.

It is written a second time because only the server can do it in one round trip, one visit after the other, by one
clock. A test sends thousands of random visits to both and compares every field of every answer. Five files are
joined: places.lua, allowance.lua, desk.lua, granting.lua and this one; in front of them come ``#!lua`` and the
numbers of the Python files.
The first line makes a server that could not write (out of memory, a replica, cut off from its primary) refuse
the script before it has changed anything.

    KEYS  1 a hash: the desk (packed), what was learned (text), and each note for the leader by its number
    ARGV  1 the visit (JSON)   2 its terms (JSON, dimensions in order)   3 its note, or ''   4 its learned text, or ''
          5 the instant, on this server's clock, after which its member does not wait for the answer any more
    gives the reply's numbers (doubles, packed), what there was too little of, what was learned, and each note; of a visit that
    comes too late nothing but the clock, which all answers end their numbers with

One key, so that it moves between the nodes of a Cluster, expires and is evicted as a whole.
]]

if clock > tonumber(ARGV[5]) then
  return {struct.pack('<d', clock)}
end
open_desk()
local covered = desk.covers
local now = corrected_time()
see_off(now)
local seat = seat_of(visit.member, now)
seat[SEEN] = now
grow(now)
local is_leader = leads(now)
local is_new = is_leader and (not published or published.fence ~= desk.fence)
if is_leader and terms_text ~= desk.terms_text then
  agree()
end
local solo = visit.solo and is_leader and members_at(now) == 1
local wait, of, kept, saved = 0, '', nil, ''
if visit.number > seat[NUMBER] then
  seat[NUMBER], seat[GONE], seat[SPAN] = visit.number, visit.leaves, math.min(visit.span, LONGEST_SPAN)
  seat[SOLO] = visit.solo and (solo or seat[SOLO])
  kept = hear(seat, now)
  if published and published.fence == desk.fence then
    publish(now)
    saved = learned
  end
  wait, of = grant(seat, now)
end

local left = 1
for _, limit in ipairs(desk.limits) do
  if limit[WINDOW] >= LONG_WINDOW then
    left = math.min(left, left_of(limit, now))
  end
end
local is_granted = visit.number == seat[GRANTED_TO] and seat[ERA] == desk.era
local reply = {
  struct.pack(
    '<dddddddddddddddddddd', now, is_granted and seat[GRANTED] or 0, seat[FIRST], desk.line, pace(),
    math.max(0, desk.hold_until - now), desk.era, wait, desk.circuit_open and 1 or 0,
    math.max(0, desk.open_until - now), seat[PROBE] and is_granted and 1 or 0, desk.cap, left, desk.word,
    members_at(now), is_leader and desk.fence or 0, desk.covers,
    desk.has_learned and math.max(0, wall - desk.saved_wall) or 0, solo and 1 or 0, clock
  ),
  of,
  '',
}

-- ---------------------------------------------------------------- what lies beside the desk

local written = {'desk', cmsgpack.pack(desk)}
if kept and desk.noted > desk.covers then
  table.insert(written, desk.noted)
  table.insert(written, kept)
end
if saved ~= '' then
  table.insert(written, 'learned')
  table.insert(written, saved)
end
redis.call('HSET', KEYS[1], unpack(written))
redis.call('EXPIRE', KEYS[1], KEPT_FOR)

-- The numbers of the notes after the first and up to the second of these two, of which few can be there.
local function notes_between(first, last)
  local numbers = {}
  for number = math.max(first, desk.noted - MOST_NOTES - 1) + 1, math.min(last, desk.noted) do
    numbers[#numbers + 1] = number
  end
  return numbers
end

local needless = notes_between(covered, desk.covers)
if #needless > 0 then
  redis.call('HDEL', KEYS[1], unpack(needless))
end
if is_new and desk.has_learned then
  reply[3] = redis.call('HGET', KEYS[1], 'learned') or ''
end
if is_leader then
  local read = (is_new or not published) and desk.covers or published.read
  local unread = notes_between(math.max(read, desk.covers), desk.noted)
  for _, one in ipairs(#unread > 0 and redis.call('HMGET', KEYS[1], unpack(unread)) or {}) do
    local _, stop, length = string.find(one or '', '^%d+ %S+ (%d+) ')
    if stop and (is_new or string.sub(one, stop + 1, stop + tonumber(length)) ~= visit.member) then
      reply[#reply + 1] = one
    end
  end
end
return reply
