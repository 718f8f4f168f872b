--[[
One exchange about a key, as one script: what distributed/coordinator.py does, for members on many machines.

It is written a second time because only the server can do it in one round trip, one request after the other, by one
clock. A test sends thousands of random requests to both and compares every field of every answer. Five files are
joined: fields.lua, shared_quota.lua, coordinator.lua, grants.lua and this one; in front of them come ``#!lua`` and the
numbers of the Python files.
The first line makes a server that could not write (out of memory, a replica, cut off from its primary) refuse
the script before it has changed anything.

    KEYS  1 a hash: the coordinator (packed), what was learned (text), and each note for the leader by its number
    ARGV  1 the request (JSON)   2 its terms (JSON, dimensions in order)   3 its note, or ''   4 its learned text, or ''
          5 the instant, on this server's clock, after which its member does not wait for the answer any more
    gives the reply's numbers (doubles, packed), what there was too little of, what was learned, and each note; of a request that
    comes too late nothing but the clock, which all answers end their numbers with

One key, so that it moves between the nodes of a Cluster, expires and is evicted as a whole.
]]

if clock > tonumber(ARGV[5]) then
  return {struct.pack('<d', clock)}
end
load_state()
local covered = state.covers
local now = corrected_time()
see_off(now)
local member = member_of(request.member, now)
member[SEEN] = now
grow(now)
local is_leader = leads(now)
local is_new = is_leader and (not published or published.fence ~= state.fence)
if is_leader and terms_text ~= state.terms_text then
  agree()
end
local solo = request.solo and is_leader and members_at(now) == 1
local wait, of, kept, saved = 0, '', nil, ''
if request.number > member[NUMBER] then
  member[NUMBER], member[GONE], member[SPAN] = request.number, request.leaves, math.min(request.span, LONGEST_SPAN)
  member[SOLO] = request.solo and (solo or member[SOLO])
  kept = apply_report(member, now)
  if published and published.fence == state.fence then
    publish(now)
    saved = learned
  end
  wait, of = grant(member, now)
end

local left = 1
for _, limit in ipairs(state.limits) do
  if limit[WINDOW] >= LONG_WINDOW then
    left = math.min(left, left_of(limit, now))
  end
end
local is_granted = request.number == member[GRANTED_TO] and member[ERA] == state.era
local reply = {
  struct.pack(
    '<dddddddddddddddddddd', now, is_granted and member[GRANTED] or 0, member[FIRST], state.line, pace(),
    math.max(0, state.hold_until - now), state.era, wait, state.circuit_open and 1 or 0,
    math.max(0, state.open_until - now), member[PROBE] and is_granted and 1 or 0, state.cap, left, state.word,
    members_at(now), is_leader and state.fence or 0, state.covers,
    state.has_learned and math.max(0, wall - state.saved_wall) or 0, solo and 1 or 0, clock
  ),
  of,
  '',
}

-- ---------------------------------------------------------------- what is kept beside the state

local written = {'desk', cmsgpack.pack(state)}
if kept and state.noted > state.covers then
  table.insert(written, state.noted)
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
  for number = math.max(first, state.noted - MOST_NOTES - 1) + 1, math.min(last, state.noted) do
    numbers[#numbers + 1] = number
  end
  return numbers
end

local needless = notes_between(covered, state.covers)
if #needless > 0 then
  redis.call('HDEL', KEYS[1], unpack(needless))
end
if is_new and state.has_learned then
  reply[3] = redis.call('HGET', KEYS[1], 'learned') or ''
end
if is_leader then
  local read = (is_new or not published) and state.covers or published.read
  local unread = notes_between(math.max(read, state.covers), state.noted)
  for _, one in ipairs(#unread > 0 and redis.call('HMGET', KEYS[1], unpack(unread)) or {}) do
    local _, stop, length = string.find(one or '', '^%d+ %S+ (%d+) ')
    if stop and (is_new or string.sub(one, stop + 1, stop + tonumber(length)) ~= request.member) then
      reply[#reply + 1] = one
    end
  end
end
return reply
