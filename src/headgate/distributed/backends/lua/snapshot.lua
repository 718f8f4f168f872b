-- What people may want to know of a shared quota (KEYS 1), as JSON; nothing if there is none.

local packed = redis.call('HGET', KEYS[1], 'desk')
if not packed then
  return false
end
local state = cmsgpack.unpack(packed)
local time = redis.call('TIME')
local clock = tonumber(time[1]) + tonumber(time[2]) / 1e6
local now = math.max(state.at, clock + state.skew)
local members = {}
for name, member in pairs(state.seats) do
  if not member[GONE] and now - member[SEEN] <= LIVE then
    members[#members + 1] = {name, now - member[SEEN], member[FLYING], member[HUNGRY_AT] > 0}
  end
end
return cjson.encode({
  rate = math.max(LEAST_PACE, math.min(state.rate, state.most)), issued = state.issued, line = state.line,
  hold = math.max(0, state.hold_until - now), cap = state.cap, circuit_open = state.circuit_open,
  open_for = state.circuit_open and math.max(0, state.open_until - now) or 0, era = state.era, leader = state.leader,
  members = members, learned_ago = state.has_learned and math.max(0, clock - state.saved_wall) or cjson.null,
})
