-- Queues place ARGV[1] for the lock K, for ARGV[3] ms from now, with ticket ARGV[2] ('': the one it has, or the node's time, 'new': the node's time); {ms that K is still held for, how many are before us, us}, us being the node's time. The queue lives for ARGV[4] ms. Without 'new', those who stand first though their time is over are dropped.
if ARGV[2] ~= 'new' then front(KEYS[2], tonumber(ARGV[4]), ARGV[1]) end
clock()
local ends = 4e15 + ms + ARGV[3]
if ARGV[2] == '' then
  redis.call('ZADD', KEYS[2], 'NX', us, ARGV[1])
  redis.call('ZADD', KEYS[2], ends, ARGV[1] .. '!')
else
  redis.call('ZADD', KEYS[2], ARGV[2] == 'new' and us or ARGV[2], ARGV[1], ends, ARGV[1] .. '!')
end
redis.call('PEXPIRE', KEYS[2], ARGV[4])
return {redis.call('PTTL', KEYS[1]), redis.call('ZRANK', KEYS[2], ARGV[1]), us}
