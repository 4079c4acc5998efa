-- Removes entry ARGV[1] from the queue of the lock K. If K is free, announces value ARGV[4] on channel ARGV[2]:ENTRY to the
-- first ARGV[3] entries that listen: we may have been notified of the release and not have used it. Replies 1.
redis.call('ZREM', KEYS[2], ARGV[1], ARGV[1] .. '!')
if redis.call('EXISTS', KEYS[1]) == 1 then return 1 end
local queue = redis.call('ZRANGE', KEYS[2], '0', '63', 'WITHSCORES')
if not queue[1] then return 1 end
local time = redis.call('TIME')
local now = 4e15 + time[1] * 1000 + math.floor(time[2] / 1000)
local told, from, over = 0, 0, {}
for i = 1, #queue, 2 do over[queue[i]] = queue[i + 1] end
-- By sixty-four, as in a release.
while queue[1] and from < 512 do
  for i = 1, #queue, 2 do
    local entry = queue[i]
    if string.sub(entry, -1) ~= '!' then
      local ends = over[entry .. '!'] or #queue == 128 and redis.call('ZSCORE', KEYS[2], entry .. '!')
      if ends and (tonumber(ends) or 0) >= now then
        local heard = redis.pcall('PUBLISH', ARGV[2] .. ':' .. entry, (told + 1) .. ' ' .. ARGV[4])
        if heard ~= 0 and type(heard) == 'number' then told = told + 1 end
        if told == tonumber(ARGV[3]) then return 1 end
      end
    end
  end
  from = from + 64
  queue = #queue == 128 and redis.call('ZRANGE', KEYS[2], from, from + 63, 'WITHSCORES') or {}
end
return 1
