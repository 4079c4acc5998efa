-- If the lock K holds our value ARGV[1], raises the register to ARGV[2]. Never lowers a register.
-- Replies {1}: it was below ARGV[2] and is that now; {2, token}: it was not below ARGV[2] and has that token;
-- {0}: the key holds another value; {-1}: there is no key.
local held = redis.call('GET', KEYS[1])
if held == false then return {-1} end
if held ~= ARGV[1] then return {0} end
if redis.call('ZADD', KEYS[2], 'GT', 'CH', ARGV[2], 'f') == 1 then return {1} end
-- The score goes out as the text that ZSCORE gives: Lua would print it as 1.79e+15.
return {2, redis.call('ZSCORE', KEYS[2], 'f')}
