-- An operator's order for a fleet run (KEYS 1): mirrors headgate/fleet/run_state.py, RunState.order.
--
-- ARGV: stop, pause or resume. Answers 0 if there is no such run.

local run, kind = KEYS[1], ARGV[1]
if redis.call('HEXISTS', run, 'about') == 0 then return 0 end

local text = redis.call('HGET', run, 'orders')
local orders = text and cjson.decode(text) or {stopped = {}, paused = false}
orders.paused = kind == 'pause'
if kind == 'stop' then
  local known, jobs = {}, {}
  local function add(job)
    if not known[job] then
      known[job] = true
      jobs[#jobs + 1] = job
    end
  end
  for _, job in ipairs(orders.stopped) do add(job) end
  local all = redis.call('HGETALL', run)
  for place = 1, #all, 2 do
    if string.sub(all[place], 1, 2) == 'm:' then add(cjson.decode(all[place + 1]).job) end
  end
  orders.stopped = {}
  for place = math.max(1, #jobs - MOST_STOPPED + 1), #jobs do
    orders.stopped[#orders.stopped + 1] = jobs[place]
  end
end
redis.call('HSET', run, 'orders', cjson.encode(orders))
return 1
