-- If the lock K holds value ARGV[1], puts ARGV[2] in its place with at least ARGV[3] ms to live (0: the ttl that is left) and moves the register up to ARGV[4] (empty: leaves it); {1, 1}: done and moved, {1, 0}: done, the register was not below, {0, value}: another's value, {-1}: nothing there.
local held = redis.call('GET', KEYS[1])
if held == false then return {-1} end
if held ~= ARGV[1] then return {0, held} end
-- First, for it may be refused (another type, no memory), and then nothing is done.
local moved = 0
if ARGV[4] ~= '' then moved = redis.call('ZADD', KEYS[2], 'GT', 'CH', ARGV[4], 'f') end
local left = redis.call('PTTL', KEYS[1])
if left >= 0 and left < tonumber(ARGV[3]) then
  redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
else
  redis.call('SET', KEYS[1], ARGV[2], 'KEEPTTL')
end
return {1, moved}
