-- If the lock K is free and nobody queues before us, stores our value ARGV[1] for ARGV[2] ms and moves the register up to ARGV[3]; else queues place ARGV[4] with ticket ARGV[5] (empty: queues nothing) for ARGV[6] ms from now. {1, moved, us}: ours, {0, holder, ms left, before us, us}: held, {2, first, ms until its place is over, before us, us}: free, but another is first, and is told so, by our value on channel ARGV[8] .. ':' .. first; us: the node's time. The queue lives for ARGV[7] ms. Places whose time is over are dropped.
local time = redis.call('TIME')
local ms = time[1] * 1000 + math.floor(time[2] / 1000)
local us = time[1] * 1000000 + time[2]
-- Also those that would last for too long: a clock that was set back would keep them.
for _, range in ipairs({{'-inf', ms - 1}, {ms + tonumber(ARGV[7]) + 1, '+inf'}}) do
  for _, place in ipairs(redis.call('ZRANGEBYSCORE', KEYS[4], range[1], range[2])) do
    redis.call('ZREM', KEYS[3], place)
    redis.call('ZREM', KEYS[4], place)
  end
end
local queues = ARGV[5] ~= ''
if queues then
  redis.call('ZADD', KEYS[3], ARGV[5], ARGV[4])
  redis.call('ZADD', KEYS[4], ms + ARGV[6], ARGV[4])
  redis.call('PEXPIRE', KEYS[3], ARGV[7])
  redis.call('PEXPIRE', KEYS[4], ARGV[7])
end
local before = queues and redis.call('ZRANK', KEYS[3], ARGV[4]) or redis.call('ZCARD', KEYS[3])
local held = redis.call('GET', KEYS[1])
if held then return {0, held, redis.call('PTTL', KEYS[1]), before, us} end
local first = redis.call('ZRANGE', KEYS[3], 0, 0)[1]
while first and first ~= ARGV[4] do
  local over = redis.call('ZSCORE', KEYS[4], first)
  if over then
    -- Who was told before us may have given up since, and nobody else may know.
    redis.pcall('PUBLISH', ARGV[8] .. ':' .. first, '1 ' .. ARGV[1])
    return {2, first, over - ms, before, us}
  end
  -- One that has no end would stand there for ever.
  redis.call('ZREM', KEYS[3], first)
  first = redis.call('ZRANGE', KEYS[3], 0, 0)[1]
end
-- First, for it may be refused (another type, no memory), and then nothing is done.
-- An error of the register must not read as one of the lock.
local moved = redis.pcall('ZADD', KEYS[2], 'GT', 'CH', ARGV[3], 'f')
if type(moved) == 'table' and moved.err then return redis.error_reply('FENCE ' .. moved.err) end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return {1, moved, us}
