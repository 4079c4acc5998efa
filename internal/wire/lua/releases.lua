-- Releases many locks in one step. KEYS are n locks, the queues of the first ARGV[1] of them, and their registers, each of which
-- gets 25 hours to live if it has less than a day; behind the number in ARGV[1] there may be other times, in ms: first that
-- of the day. ARGV[2] and the following are our n values. A lock that holds its value is deleted, and if it has a queue, the
-- value is announced to the first two entries that listen, as in lua/release.lua.
-- Replies one character for each lock: 1: deleted in this step; 2: and a waiter was notified; 3: and PUBLISH was refused;
-- 0: nothing was done, for whatever reason.
local locks, queues, least, given = #ARGV - 1, tonumber(ARGV[1]), 86400000, '90000000'
if not queues then
  queues, least, given = string.match(ARGV[1], '(%d+) (%d+) (%d+)')
  queues, least = tonumber(queues), tonumber(least)
end
local held = redis.call('MGET', unpack(KEYS, 1, locks))
-- All that may be refused comes before the deletion: an error must not come from locks that are released.
local queued = queues > 0 and redis.call('EXISTS', unpack(KEYS, locks + 1, locks + queues)) or 0
for i = locks + queues + 1, #KEYS do
  if redis.call('PTTL', KEYS[i]) < least then redis.call('PEXPIRE', KEYS[i], given) end
end
local gone, done = {}, {}
for i = 1, locks do
  done[i] = '0'
  if held[i] == ARGV[i + 1] then
    done[i] = '1'
    gone[#gone + 1] = KEYS[i]
  end
end
if #gone > 0 then redis.call('DEL', unpack(gone)) end
-- Not call from here on: who may not publish, or not ask for the time, has released all the same.
local time = queued > 0 and redis.pcall('TIME')
if not time or time.err then return table.concat(done) end
local now = 4e15 + time[1] * 1000 + math.floor(time[2] / 1000)
local function announce(entries, value)
  -- {K}:queue, and {K}:release:entry is the channel of an entry.
  local channel = string.sub(entries, 1, -6) .. 'release:'
  local told, from, over = 0, 0, {}
  local queue = redis.pcall('ZRANGE', entries, '0', '63', 'WITHSCORES')
  for i = 1, #queue, 2 do over[queue[i]] = queue[i + 1] end
  while queue[1] and from < 512 do
    for i = 1, #queue, 2 do
      local entry = queue[i]
      if string.sub(entry, -1) ~= '!' then
        local ends = over[entry .. '!'] or #queue == 128 and redis.pcall('ZSCORE', entries, entry .. '!')
        if type(ends) == 'string' and (tonumber(ends) or 0) >= now then
          local heard = redis.pcall('PUBLISH', channel .. entry, (told + 1) .. ' ' .. value)
          if type(heard) == 'table' then return '3' end
          if heard ~= 0 then told = told + 1 end
          if told == 2 then return '2' end
        end
      end
    end
    from = from + 64
    queue = #queue == 128 and redis.pcall('ZRANGE', entries, from, from + 63, 'WITHSCORES') or {}
  end
  return told > 0 and '2' or '1'
end
for i = 1, queues do
  if done[i] == '1' then done[i] = announce(KEYS[locks + i], ARGV[i + 1]) end
end
return table.concat(done)
