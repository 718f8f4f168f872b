-- What people may want to know of a desk (KEYS 1), as JSON; nothing if there is none.

local packed = redis.call('HGET', KEYS[1], 'desk')
if not packed then
  return false
end
local desk = cmsgpack.unpack(packed)
local time = redis.call('TIME')
local clock = tonumber(time[1]) + tonumber(time[2]) / 1e6
local now = math.max(desk.at, clock + desk.skew)
local members = {}
for member, seat in pairs(desk.seats) do
  if not seat[GONE] and now - seat[SEEN] <= LIVE then
    members[#members + 1] = {member, now - seat[SEEN], seat[FLYING], seat[HUNGRY_AT] > 0}
  end
end
return cjson.encode({
  rate = math.max(LEAST_PACE, math.min(desk.rate, desk.most)), issued = desk.issued, line = desk.line,
  hold = math.max(0, desk.hold_until - now), cap = desk.cap, circuit_open = desk.circuit_open,
  open_for = desk.circuit_open and math.max(0, desk.open_until - now) or 0, era = desk.era, leader = desk.leader,
  members = members, learned_ago = desk.has_learned and math.max(0, clock - desk.saved_wall) or cjson.null,
})
