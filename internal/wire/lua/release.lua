-- Deletes the lock K if it holds our value ARGV[1], and announces that to waiters, whose queue is KEYS[2]. In any case, if
-- the lock has a register KEYS[3] with less than ARGV[5] ms to live (absent: a day), that gets ARGV[6] ms (25 hours).
-- If K is free then, ARGV[1] is announced on channel ARGV[2]:ENTRY to the first ARGV[4] (0, 1 or 2; absent: 2) entries of
-- the queue that listen, with their number before it. Expired entries are skipped, unless ARGV[4] is 1. Without channel
-- ARGV[2], nothing is announced.
-- ARGV[4] = attempt: to 2, if this deletes the lock; the number is marked, since nobody is known to have held it.
-- ARGV[4] = handed: to 2, marked, if K is free then.
-- ARGV[3] is our own entry: with ARGV[7], and if a waiter was notified or another has the lock, it moves to the end of the
-- queue and lives for ARGV[7] ms, and the queue for ARGV[8] ms, if that is given; otherwise it is removed.
-- With ARGV[9] our entry is queued with this ticket for ARGV[7] ms, before waiters are notified, and is notified as any other;
-- the queue lives for ARGV[8] ms from then on.
-- Replies 1: deleted; 2: deleted, and a waiter was notified; 3: deleted, and a waiter could not be notified: PUBLISH was refused; 0: the key holds another value; -1: there is no key.
-- Not call: a key of another type is another's, and its register is to get a life, too. Any other error says nothing about whose the key is.
local held = redis.pcall('GET', KEYS[1])
if type(held) == 'table' and not string.find(held.err, '^%-?WRONGTYPE') then return held end
-- Before the deletion: where this is refused, the error must not come from a lock that is released.
if KEYS[3] and redis.call('PTTL', KEYS[3]) < (tonumber(ARGV[5]) or 86400000) then redis.call('PEXPIRE', KEYS[3], ARGV[6] or '90000000') end
local verdict = -1
if held == ARGV[1] then
  redis.call('DEL', KEYS[1])
  verdict = 1
elseif held then
  verdict = 0
end
if (ARGV[2] or '') == '' then return verdict end
local most = tonumber(ARGV[4]) or 2
local nth = (ARGV[4] == 'attempt' or ARGV[4] == 'handed') and '? ' or ' '
if verdict == 0 or verdict == -1 and ARGV[4] == 'attempt' then most = 0 end
if most == 0 and (ARGV[3] or '') == '' then return verdict end
-- Not call from here on: who may not publish, or not ask for the time, has released all the same.
local ours, from, told, size = ARGV[3] or '', 0, 0, 4
local time, us, now, mute
local function clock()
  time = redis.pcall('TIME')
  if time.err then return end
  us = time[1] * 1000000 + time[2]
  now = 4e15 + math.floor(us / 1000)
  return true
end
if ARGV[9] then
  if not clock() then return verdict end
  -- Before the entry: where this is refused, a queue without a ttl would stand for ever. 0: there is no queue yet.
  local lives = redis.pcall('PEXPIRE', KEYS[2], ARGV[8])
  if type(lives) == 'number' then redis.pcall('ZADD', KEYS[2], ARGV[9], ours, now + ARGV[7], ours .. '!') end
  if lives == 0 then redis.pcall('PEXPIRE', KEYS[2], ARGV[8]) end
end
-- Four, then by sixty-four: mostly the first two are alive, and a reply with many scores takes the server longer than all
-- else here; but a whole fleet that was stopped may stand before them.
local queue = redis.pcall('ZRANGE', KEYS[2], '0', '3', 'WITHSCORES')
if not queue[1] then return verdict end
if ARGV[9] then
  ours = ''
elseif most > 1 and not clock() then
  return verdict
end
while queue[1] and most > 0 do
  local over, behind = {}, false
  for i = 1, #queue, 2 do over[queue[i]] = queue[i + 1] end
  for i = 1, #queue, 2 do
    local entry, at = queue[i], tonumber(queue[i + 1]) or 9e15
    if string.sub(entry, -1) == '!' then
      behind = at >= 4e15 -- all entries
    elseif entry ~= ours then
      -- No entry lives for less than two seconds from its ticket on.
      local alive = most == 1 or at < 4e15 and at + 2000000 >= us
      if not alive then
        local ends = over[entry .. '!'] or redis.pcall('ZSCORE', KEYS[2], entry .. '!')
        alive = type(ends) == 'string' and (tonumber(ends) or 0) >= now
      end
      if alive then
        -- The number of those who hear it skips the dead: their connections are gone.
        local heard = redis.pcall('PUBLISH', ARGV[2] .. ':' .. entry, (told + 1) .. nth .. ARGV[1])
        if type(heard) == 'table' then mute = true elseif heard ~= 0 then told = told + 1 end
      end
    end
    if behind or told == most or mute then break end
  end
  from = from + size
  if behind or told == most or mute or #queue < 2 * size or from >= 512 then break end
  size = 64
  queue = redis.pcall('ZRANGE', KEYS[2], from, from + 63, 'WITHSCORES')
end
if ours ~= '' and ARGV[7] and (told > 0 or verdict == 0) and (us or clock()) then
  redis.pcall('ZADD', KEYS[2], us, ours, now + ARGV[7], ours .. '!')
  if ARGV[8] then redis.pcall('PEXPIRE', KEYS[2], ARGV[8]) end
elseif ours ~= '' then
  redis.pcall('ZREM', KEYS[2], ours, ours .. '!')
end
if verdict == 1 and told > 0 then return 2 end
if verdict == 1 and mute then return 3 end
return verdict
