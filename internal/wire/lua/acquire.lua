-- Grants the lock K if it is free: stores our value ARGV[1] for ARGV[2] ms, and raises the register to ARGV[3]. If that is
-- empty, the register is left alone.
-- Replies {1, 1}: granted, and the register was raised; {1, 0}: granted, but the register was not below ARGV[3], or was left
-- alone; {0, value}: the key holds another value.
local held = redis.call('GET', KEYS[1])
if held then return {0, held} end
-- First, for it may be refused (another type, no memory), and then nothing is done.
-- An error of the register must not read as one of the lock.
local moved = ARGV[3] == '' and 0 or redis.pcall('ZADD', KEYS[2], 'GT', 'CH', ARGV[3], 'f')
if type(moved) == 'table' and moved.err then return redis.error_reply('FENCE ' .. moved.err) end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return {1, moved}
