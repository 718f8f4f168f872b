-- Merges what is said of credentials (ARGV 3 on: a name, then its record) into what is kept of them (KEYS 1).
-- A claim (ARGV 2) is merged only if no other process asks whether the account can spend again (Record.forbids).
--
-- A record is two JSON texts with a line end between them: what is merged (era, until, retired, ...) and what the last
-- writer knows best (label, budget, ...). They are kept as they came: numbers lose nothing on their way through here.
-- The field "version" changes whenever anything else does.

local kept, most = KEYS[1], tonumber(ARGV[1])

local function parts(record)
  local stop = string.find(record, '\n', 1, true)
  return string.sub(record, 1, stop - 1), string.sub(record, stop + 1)
end

local function merged(old, new)
  local old_facts, new_facts = parts(old), parts(new)
  local was, is = cjson.decode(old_facts), cjson.decode(new_facts)
  if was.era ~= is.era then
    return was.era > is.era and old or new
  end
  if is.retired or (is['until'] >= was['until'] and not was.retired) then
    return new
  end
  local _, about = parts(new)
  return old_facts .. '\n' .. about
end

local function forbids(name, kept_record, claim_name, claim_record, now)
  local old_facts, old_about = parts(kept_record)
  local new_facts, new_about = parts(claim_record)
  local was, is = cjson.decode(old_facts), cjson.decode(new_facts)
  if name == claim_name and was.era ~= is.era then
    return was.era > is.era
  end
  if was.reason ~= 'spend' or was['until'] <= now then
    return false
  end
  local old, new = cjson.decode(old_about), cjson.decode(new_about)
  local has_group = old.group ~= nil and old.group ~= cjson.null
  return name == claim_name or (has_group and old.group == new.group and old.provider == new.provider)
end

if ARGV[2] == 'claim' then
  local all, time = redis.call('HGETALL', kept), redis.call('TIME')
  local now = tonumber(time[1]) + tonumber(time[2]) / 1e6
  for place = 3, #ARGV, 2 do
    for at = 1, #all, 2 do
      if all[at] ~= 'version' and forbids(all[at], all[at + 1], ARGV[place], ARGV[place + 1], now) then
        return -1
      end
    end
  end
end

local changed = 0
for place = 3, #ARGV, 2 do
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
      ages[#ages + 1] = {cjson.decode((parts(all[place + 1]))).written_at, all[place]}
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
