-- Takes place ARGV[1] off the queue for the lock K. If K is free, announces it on channel ARGV[2] .. ':' .. place to the first ARGV[3] that hear it, for we may have been told of it and not taken it; 1.
redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('ZREM', KEYS[3], ARGV[1])
if redis.call('EXISTS', KEYS[1]) == 1 then return 1 end
local time = redis.call('TIME')
local ms = time[1] * 1000 + math.floor(time[2] / 1000)
local told = 0
for _, place in ipairs(redis.call('ZRANGE', KEYS[2], 0, 15)) do
  if tonumber(redis.call('ZSCORE', KEYS[3], place) or 0) >= ms then
    local heard = redis.pcall('PUBLISH', ARGV[2] .. ':' .. place, (told + 1) .. ' ' .. ARGV[1])
    if heard ~= 0 and type(heard) == 'number' then told = told + 1 end
    if told == tonumber(ARGV[3]) then break end
  end
end
return 1
