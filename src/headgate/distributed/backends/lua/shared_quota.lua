-- A known limit that many share: what SharedQuota of distributed/grants.py does, on a plain table. Joined in front of coordinator.lua.

local function window_free_at(limit, amount, now)
  local spent = limit[SPENT]
  while spent[1] and spent[1][LAST] + limit[WINDOW] <= now do
    table.remove(spent, 1)
  end
  local over = amount - limit[AMOUNT]
  for _, entry in ipairs(spent) do
    over = over + entry[SUM]
  end
  local free_at = now
  for _, entry in ipairs(spent) do
    if over <= ROUNDING * limit[AMOUNT] then
      break
    end
    over = over - entry[SUM]
    free_at = math.max(free_at, entry[LAST] + limit[WINDOW])
  end
  return free_at
end

local function ready_at(limit, amount, now)
  local free_at = window_free_at(limit, amount, now)
  if limit[BURST] >= limit[AMOUNT] then
    return free_at
  end
  local refill = (limit[AMOUNT] - limit[BURST]) / limit[WINDOW]
  limit[LEVEL] = math.min(limit[BURST], limit[LEVEL] + refill * math.max(0, now - limit[FILLED]))
  limit[FILLED] = math.max(now, limit[FILLED])
  local missing = math.min(amount, limit[BURST]) - limit[LEVEL]
  if missing > ROUNDING * limit[BURST] then
    return math.max(free_at, now + missing / refill)
  end
  return free_at
end

local function take(limit, amount, now, starts_at)
  limit[LEVEL] = limit[LEVEL] - amount
  local spent = limit[SPENT]
  local last, slice = spent[#spent], limit[WINDOW] / SLICES
  if last and (starts_at <= last[LAST] or math.floor(starts_at / slice) == math.floor(last[LAST] / slice)) then
    last[LAST] = math.max(starts_at, last[LAST])
    last[SUM] = last[SUM] + amount
  else
    spent[#spent + 1] = {now, starts_at, amount}
  end
end

local function give_back(limit, amount, taken_at, now)
  if amount < 0 then
    local least = math.min(limit[LEVEL], 2 * limit[BURST] - limit[AMOUNT])
    take(limit, -amount, now, now)
    limit[LEVEL] = math.max(limit[LEVEL], least)
    return
  end
  limit[LEVEL] = math.min(limit[BURST], limit[LEVEL] + amount)
  local spent = limit[SPENT]
  if #spent == 0 or taken_at + limit[WINDOW] <= now then
    return
  end
  local place = #spent
  while place > 1 and spent[place][BEGAN] > taken_at + INSTANT do
    place = place - 1
  end
  local entry = spent[place]
  entry[SUM] = math.max(0, entry[SUM] - amount)
end

local function left_of(limit, now)
  local spent = 0
  for _, entry in ipairs(limit[SPENT]) do
    if entry[LAST] + limit[WINDOW] > now then
      spent = spent + entry[SUM]
    end
  end
  return math.max(0, 1 - spent / limit[AMOUNT])
end

local function go_on_from(limit, before)
  limit[LEVEL], limit[FILLED] = math.min(limit[BURST], before[LEVEL]), before[FILLED]
  limit[SPENT] = {}
  for place, entry in ipairs(before[SPENT]) do
    limit[SPENT][place] = {unpack(entry)}
  end
end
