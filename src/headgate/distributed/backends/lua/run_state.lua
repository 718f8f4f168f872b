-- One report of a member of a fleet run (KEYS 1): mirrors headgate/fleet/run_state.py, RunState.exchange.
--
-- ARGV: the member's name, its request as JSON, its detail for people (empty: as before), seconds until it is lost.
--
--   about     {began_at, seen_at, grants_from, caps}        orders    {stopped, paused}
--   past      [counts, charged] of members that are gone    sums      over all members, as of the last sweep
--   m:NAME    one member's numbers                          d:NAME    ... and its detail, as it came

local run, name, request, detail = KEYS[1], ARGV[1], cjson.decode(ARGV[2]), ARGV[3]
local lost_after = tonumber(ARGV[4])

local function read(field, otherwise)
  local text = redis.call('HGET', run, field)
  return text and cjson.decode(text) or otherwise
end

local function plus(one, other, sign)
  local sum = {}
  for place = 1, #one do
    sum[place] = one[place] + (sign or 1) * other[place]
  end
  return sum
end

local function most(one, other)
  local found = {}
  for place = 1, #one do
    found[place] = math.max(one[place], other[place])
  end
  return found
end

local function nothing()
  return {{0, 0, 0, 0, 0, 0, 0, 0}, {0, 0}}
end

local function charged(member)
  return most(member.held, member.spent)
end

local function unspent(member)
  return plus(charged(member), member.spent, -1)
end

local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1e6
local about = read('about')
local orders = read('orders', {stopped = {}, paused = false})
local past = read('past', nothing())
local is_new = not about
if is_new then
  about = {began_at = now, seen_at = now, grants_from = now, caps = {-1, -1}}
  if request.number > 1 then -- the store has lost its data; this member knows what was ordered
    about.grants_from, about.caps = now + REJOIN_FOR, request.caps
    orders = {stopped = request.stopped and {request.job} or {}, paused = request.paused}
  end
end
now = math.max(now, about.seen_at)
about.seen_at = now
if now < about.grants_from then
  past = {most(past[1], request.past[1]), most(past[2], request.past[2])}
end

local sums = read('sums')
if not sums or now >= sums.swept_at + SWEEP_EVERY then
  sums = {swept_at = now, live = 0, charged = {0, 0}, unspent = {0, 0}, lost = nothing()}
  local all = redis.call('HGETALL', run)
  for place = 1, #all, 2 do
    if string.sub(all[place], 1, 2) == 'm:' then
      local member = cjson.decode(all[place + 1])
      local silent = now - member.seen_at
      if silent > FOLD_AFTER then
        redis.call('HDEL', run, all[place], 'd:' .. string.sub(all[place], 3))
        past = {plus(past[1], member.counts), plus(past[2], charged(member))}
      else
        sums.charged = plus(sums.charged, charged(member))
        if silent > lost_after then
          sums.lost = {plus(sums.lost[1], member.counts), plus(sums.lost[2], charged(member))}
        else
          sums.live = sums.live + 1
          sums.unspent = plus(sums.unspent, unspent(member))
        end
      end
    end
  end
end

local member = read('m:' .. name)
if not member then
  if request.number == 1 then
    about.caps = request.caps
    if request.job == '' and sums.live == 0 then
      local others = {}
      for _, job in ipairs(orders.stopped) do
        if job ~= '' then others[#others + 1] = job end
      end
      orders.stopped = others
    end
  end
  member = {number = 0, counts = nothing()[1], spent = {0, 0}, held = {0, 0}}
  sums.live = sums.live + 1
end

local function pool()
  local left = {}
  for place = 1, 2 do
    local cap = about.caps[place]
    left[place] = cap < 0 and -1 or math.max(0, cap - past[2][place] - sums.charged[place])
  end
  return left
end

local function grant()
  local left, given = pool(), {0, 0}
  if now < about.grants_from then return given end
  for place = 1, 2 do
    if about.caps[place] >= 0 then
      local need, want = request.need[place], request.want[place]
      if need > left[place] then return {0, 0} end
      given[place] = math.max(need, math.min(want, left[place] / (SHARES * math.max(1, sums.live))))
    end
  end
  return given
end

if request.number > member.number then
  local charged_before, unspent_before = charged(member), unspent(member)
  member = {
    job = request.job, number = request.number, seen_at = now, counts = request.counts, spent = request.spent,
    held = request.held, in_flight = request.in_flight, rate = request.rate,
  }
  sums.charged = plus(plus(sums.charged, charged_before, -1), charged(member))
  local granted = request.leaves and {0, 0} or grant()
  member.held = plus(member.held, granted)
  sums.charged = plus(sums.charged, granted)
  sums.unspent = plus(plus(sums.unspent, unspent_before, -1), unspent(member))
end

if request.leaves then
  redis.call('HDEL', run, 'm:' .. name, 'd:' .. name)
  past = {plus(past[1], member.counts), plus(past[2], member.spent)}
  sums.live = math.max(0, sums.live - 1)
  sums.charged = plus(sums.charged, charged(member), -1)
  sums.unspent = plus(sums.unspent, unspent(member), -1)
  member.held = member.spent
else
  redis.call('HSET', run, 'm:' .. name, cjson.encode(member))
  if detail ~= '' then redis.call('HSET', run, 'd:' .. name, detail) end
end
redis.call(
  'HSET', run, 'about', cjson.encode(about), 'orders', cjson.encode(orders), 'past', cjson.encode(past),
  'sums', cjson.encode(sums)
)
redis.call('EXPIRE', run, KEPT_FOR)

local is_stopped = false
for _, job in ipairs(orders.stopped) do
  is_stopped = is_stopped or job == request.job
end
return cjson.encode({
  now = now, stopped = is_stopped, paused = orders.paused, held = member.held, pool = pool(),
  others = most(plus(sums.unspent, unspent(member), -1), {0, 0}), members = sums.live,
  past = {plus(past[1], sums.lost[1]), plus(past[2], sums.lost[2])}, is_new = is_new,
})
