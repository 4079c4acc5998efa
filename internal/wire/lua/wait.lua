-- Queues place ARGV[1] for the lock K, for ARGV[3] ms from now, with ticket ARGV[2] ('': the one it has, or the node's time, 'new': the node's time); {ms that K is still held for, how many are before us, us}, us being the node's time. The queue lives for ARGV[4] ms. Places whose time is over are dropped.
local time = redis.call('TIME')
local ms = time[1] * 1000 + math.floor(time[2] / 1000)
local us = time[1] * 1000000 + time[2]
-- Also those that would last for too long: a clock that was set back would keep them.
for _, range in ipairs({{'-inf', ms - 1}, {ms + tonumber(ARGV[4]) + 1, '+inf'}}) do
  for _, place in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], range[1], range[2])) do
    redis.call('ZREM', KEYS[2], place)
    redis.call('ZREM', KEYS[3], place)
  end
end
if ARGV[2] == 'new' then
  redis.call('ZADD', KEYS[2], us, ARGV[1])
elseif ARGV[2] ~= '' then
  redis.call('ZADD', KEYS[2], ARGV[2], ARGV[1])
else
  redis.call('ZADD', KEYS[2], 'NX', us, ARGV[1])
end
redis.call('ZADD', KEYS[3], ms + ARGV[3], ARGV[1])
redis.call('PEXPIRE', KEYS[2], ARGV[4])
redis.call('PEXPIRE', KEYS[3], ARGV[4])
return {redis.call('PTTL', KEYS[1]), redis.call('ZRANK', KEYS[2], ARGV[1]), us}
