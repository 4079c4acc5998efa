-- Queues entry ARGV[1] for the lock K, for ARGV[3] ms, by the node's time. It keeps its ticket if it has one, unless ARGV[2] is
-- 'new'. The queue lives for ARGV[4] ms. Unless ARGV[2] is 'new', expired entries at the front are removed.
-- Replies {ms that K is still held, number of entries before ours, us}; us is the node's time.
if ARGV[2] ~= 'new' then front(KEYS[2], tonumber(ARGV[4]), ARGV[1]) end
clock()
local ends = 4e15 + ms + ARGV[3]
if ARGV[2] == 'new' then
  redis.call('ZADD', KEYS[2], us, ARGV[1], ends, ARGV[1] .. '!')
else
  redis.call('ZADD', KEYS[2], 'NX', us, ARGV[1])
  redis.call('ZADD', KEYS[2], ends, ARGV[1] .. '!')
end
redis.call('PEXPIRE', KEYS[2], ARGV[4])
return {redis.call('PTTL', KEYS[1]), redis.call('ZRANK', KEYS[2], ARGV[1]), us}
