-- Grants the lock K if it is free and no other entry is first in the queue: stores our value ARGV[1] for ARGV[2] ms, raises
-- the register to ARGV[3] (empty: leaves it alone), and removes our entry ARGV[4] from the queue. Otherwise queues the entry
-- with ticket ARGV[5] (empty: not at all) for ARGV[6] ms. Expired entries at the front are removed.
-- Replies {1, raised, us}: granted; {0, holder, ms to live, before, us}: held; {2, first, ms until its entry expires, before,
-- us}: free, but entry first has the turn, and is notified on channel ARGV[8]:ENTRY with our value. before is 1 if another
-- entry is before ours, and then ms to live is ARGV[6]. us is the node's time, or 0 where an entry with a ticket is granted.
-- The queue lives for ARGV[7] ms from its first entry on, and from each one with ARGV[9] = '1'.
local first, over = front(KEYS[3], tonumber(ARGV[7]), ARGV[4], tonumber(ARGV[5]))
local turn = not first or first == ARGV[4]
-- All that may be refused comes before what grants or queues: after an error nothing is granted, and nothing is queued.
local held = redis.call('GET', KEYS[1])
if turn and not held then
  if ARGV[5] == '' then clock() end
  -- An error of the register must not read as one of the lock.
  local moved = ARGV[3] == '' and 0 or redis.pcall('ZADD', KEYS[2], 'GT', 'CH', ARGV[3], 'f')
  if type(moved) == 'table' and moved.err then return redis.error_reply('FENCE ' .. moved.err) end
  if ARGV[4] ~= '' then redis.call('ZREM', KEYS[3], ARGV[4], ARGV[4] .. '!') end
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
  return {1, moved, us or 0}
end
clock()
local left = held and redis.call('PTTL', KEYS[1])
if ARGV[5] ~= '' then
  -- 0: there is no queue yet. The first of these calls then only shows that the second one will not be refused.
  local lives = (turn and not met or ARGV[9] == '1') and redis.call('PEXPIRE', KEYS[3], ARGV[7])
  redis.call('ZADD', KEYS[3], ARGV[5], ARGV[4], 4e15 + ms + ARGV[6], ARGV[4] .. '!')
  if lives == 0 then redis.call('PEXPIRE', KEYS[3], ARGV[7]) end
end
if held then return {0, held, left, turn and 0 or 1, us} end
-- Who was told before us may have given up since, and nobody else may know.
redis.pcall('PUBLISH', ARGV[8] .. ':' .. first, '1 ' .. ARGV[1])
return {2, first, over - ms, 1, us}
