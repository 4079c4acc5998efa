-- If the lock K is free and nobody queues before us, stores our value ARGV[1] for ARGV[2] ms, moves the register up to ARGV[3] and takes place ARGV[4] off the queue; else queues place ARGV[4] with ticket ARGV[5] (empty: queues nothing) for ARGV[6] ms from now. {1, moved, us}: ours, {0, holder, ms left, before, us}: held, {2, first, ms until its place is over, before, us}: free, but another is first, and is told so, by our value on channel ARGV[8] .. ':' .. first; before: 1 if another is before us, us: the node's time, or 0 if a place with a ticket is granted its turn. The queue lives for ARGV[7] ms, from its first place and from each one that says '1' in ARGV[9]. Those who stand first though their time is over are dropped.
local first, over = front(KEYS[3], tonumber(ARGV[7]), ARGV[4], tonumber(ARGV[5]))
local turn = not first or first == ARGV[4]
if turn and redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
  -- An error of the register must not read as one of the lock, which is then free as before.
  local moved = redis.pcall('ZADD', KEYS[2], 'GT', 'CH', ARGV[3], 'f')
  if type(moved) == 'table' and moved.err then
    redis.call('DEL', KEYS[1])
    return redis.error_reply('FENCE ' .. moved.err)
  end
  if ARGV[5] == '' then clock() end
  if ARGV[4] ~= '' then redis.call('ZREM', KEYS[3], ARGV[4], ARGV[4] .. '!') end
  return {1, moved, us or 0}
end
clock()
if ARGV[5] ~= '' then
  local added = redis.call('ZADD', KEYS[3], ARGV[5], ARGV[4], 4e15 + ms + ARGV[6], ARGV[4] .. '!')
  if turn and added > 0 or ARGV[9] == '1' then redis.call('PEXPIRE', KEYS[3], ARGV[7]) end
end
local held = redis.call('GET', KEYS[1])
if held then return {0, held, redis.call('PTTL', KEYS[1]), turn and 0 or 1, us} end
-- Who was told before us may have given up since, and nobody else may know.
redis.pcall('PUBLISH', ARGV[8] .. ':' .. first, '1 ' .. ARGV[1])
return {2, first, over - ms, 1, us}
