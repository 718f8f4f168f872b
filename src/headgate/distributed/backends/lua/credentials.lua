-- Merges what is said of credentials (ARGV 2 on: a name, then its record) into what is kept of them (KEYS 1).
--
-- A record is two JSON texts with a line end between them: what is merged (era, until, retired, ...) and what the last
-- writer knows best (label, budget, ...). They are kept as they came: numbers lose nothing on their way through here.
-- The field "version" changes whenever anything else does.

local kept, most = KEYS[1], tonumber(ARGV[1])

-- What is merged, as it came and as a table; nil for what no version of ours has put there.
local function facts(record)
  local stop = string.find(record, '\n', 1, true)
  local text = string.sub(record, 1, (stop or 1) - 1)
  local fine, said = pcall(cjson.decode, text)
  fine = fine and type(said) == 'table' and tonumber(said.era) and tonumber(said['until']) and tonumber(said.written_at)
  return fine and said or nil, text
end

local function merged(old, new)
  local was, old_text = facts(old)
  local is, new_text = facts(new)
  if not was or was.era ~= is.era then
    return was and was.era > is.era and old or new
  end
  if is.retired or (is['until'] >= was['until'] and not was.retired) then
    return new
  end
  return old_text .. string.sub(new, #new_text + 1)
end

local changed = 0
for place = 2, #ARGV, 2 do
  local name, record = ARGV[place], ARGV[place + 1]
  local before = redis.call('HGET', kept, name)
  local after = before and merged(before, record) or record
  if after ~= before then
    redis.call('HSET', kept, name, after)
    changed = changed + 1
  end
end

if redis.call('HLEN', kept) > most + 1 then -- of too many, those written last stay
  local all, ages = redis.call('HGETALL', kept), {}
  for place = 1, #all, 2 do
    if all[place] ~= 'version' then
      local said = facts(all[place + 1])
      ages[#ages + 1] = {said and tonumber(said.written_at) or 0, all[place]}
    end
  end
  table.sort(ages, function(one, other) return one[1] < other[1] end)
  for place = 1, #ages - most do
    redis.call('HDEL', kept, ages[place][2])
  end
end

if changed > 0 then
  local time = redis.call('TIME')
  local now = tonumber(time[1]) * 1e6 + tonumber(time[2])
  local version = math.max(tonumber(redis.call('HGET', kept, 'version') or 0) + 1, now)
  redis.call('HSET', kept, 'version', string.format('%.0f', version))
end
redis.call('EXPIRE', kept, KEPT_FOR)
return changed
