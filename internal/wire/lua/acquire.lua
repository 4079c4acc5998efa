-- Grants the lock K if it is free: stores our value ARGV[1] for ARGV[2] ms, and raises the register to ARGV[3].
-- Replies {1, 1}: granted, and the register was raised; {1, 0}: granted, but the register was not below ARGV[3];
-- {0, value}: the key holds another value.
local held = redis.call('GET', KEYS[1])
if held then return {0, held} end
-- First, for it may be refused (another type, no memory), and then nothing is done.
-- An error of the register must not read as one of the lock.
local moved = redis.pcall('ZADD', KEYS[2], 'GT', 'CH', ARGV[3], 'f')
if type(moved) == 'table' and moved.err then return redis.error_reply('FENCE ' .. moved.err) end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return {1, moved}
