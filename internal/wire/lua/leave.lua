-- Takes place ARGV[1] off the queue for the lock K. If K is free, announces that as value ARGV[4] on channel ARGV[2] .. ':' .. place to the first ARGV[3] that hear it, for we may have been told of it and not taken it; 1.
redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('ZREM', KEYS[3], ARGV[1])
if redis.call('EXISTS', KEYS[1]) == 1 then return 1 end
local time = redis.call('TIME')
local ms = time[1] * 1000 + math.floor(time[2] / 1000)
local told, from = 0, 0
local queue = redis.call('ZRANGE', KEYS[2], 0, 15)
-- By sixteen, as in a release.
while queue[1] and from < 512 do
  for _, place in ipairs(queue) do
    if tonumber(redis.call('ZSCORE', KEYS[3], place) or 0) >= ms then
      local heard = redis.pcall('PUBLISH', ARGV[2] .. ':' .. place, (told + 1) .. ' ' .. ARGV[4])
      if heard ~= 0 and type(heard) == 'number' then told = told + 1 end
      if told == tonumber(ARGV[3]) then return 1 end
    end
  end
  from = from + 16
  queue = redis.call('ZRANGE', KEYS[2], from, from + 15)
end
return 1
