-- If the lock K holds our value, moves the register up to token ARGV[2]; {1}: it was below and is the token now, {2, score}: it was not below and is score, {0}: another's value, {-1}: nothing there. Never lowers a register.
local held = redis.call('GET', KEYS[1])
if held == false then return {-1} end
if held ~= ARGV[1] then return {0} end
if redis.call('ZADD', KEYS[2], 'GT', 'CH', ARGV[2], 'f') == 1 then return {1} end
-- The score goes out as the text that ZSCORE gives: Lua would print it as 1.79e+15.
return {2, redis.call('ZSCORE', KEYS[2], 'f')}
