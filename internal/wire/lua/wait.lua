-- Queues entry ARGV[1] for the lock K, for ARGV[3] ms, by the node's time. It keeps its ticket if it has one, unless ARGV[2] is
-- 'new'. The queue lives for ARGV[4] ms. Unless ARGV[2] is 'new', expired entries at the front are removed.
-- Replies {ms that K is still held, number of entries before ours, us}; us is the node's time.
if ARGV[2] ~= 'new' then front(KEYS[2], tonumber(ARGV[4]), ARGV[1]) end
clock()
local ends = 4e15 + ms + ARGV[3]
-- All that may be refused comes before what queues: after an error nothing is queued.
local left, before = redis.call('PTTL', KEYS[1]), redis.call('ZRANK', KEYS[2], ARGV[1])
local lives = redis.call('PEXPIRE', KEYS[2], ARGV[4])
if before and ARGV[2] ~= 'new' then
  redis.call('ZADD', KEYS[2], ends, ARGV[1] .. '!')
  return {left, before, us}
end
redis.call('ZADD', KEYS[2], us, ARGV[1], ends, ARGV[1] .. '!')
if lives == 0 then redis.call('PEXPIRE', KEYS[2], ARGV[4]) end -- there was no queue yet
return {left, redis.call('ZRANK', KEYS[2], ARGV[1]), us}
