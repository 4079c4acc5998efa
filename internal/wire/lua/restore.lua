-- Undoes a failed adoption: if the lock K holds ARGV[1], the adopter's value, puts back ARGV[2], which that replaced, to
-- expire when it would have. lua/adopt.lua noted that time in the register: never, or a time, and if it has passed, the
-- lock is deleted. If the note was lost with the register, the ttl stays as it is. In any case, a register with less than
-- ARGV[3] ms to live gets ARGV[4] ms. If the lock is gone or ends earlier than before, ARGV[1] is announced on channel
-- ARGV[5]:ENTRY to the first two entries of the queue that listen, as the end of an attempt: others have seen the later end.
-- Replies 1: restored or deleted; 0: the key holds another value; -1: there is no key.
if redis.call('PTTL', KEYS[2]) < tonumber(ARGV[3]) then redis.call('PEXPIRE', KEYS[2], ARGV[4]) end
local held = redis.call('GET', KEYS[1])
if held == false then return -1 end
if held ~= ARGV[1] then return 0 end
local left = redis.call('PTTL', KEYS[1])
-- Not call: a register that was overwritten must not read as a lock that was.
local ends = redis.pcall('ZSCORE', KEYS[2], ARGV[1])
ends = type(ends) == 'string' and tonumber(ends)
if ends == 0 then
  redis.call('SET', KEYS[1], ARGV[2])
  left = -1 -- it never ends
else
  -- The end before the value: in any other order an error in between could leave ARGV[2] without an end. XX: the lock may be gone by that.
  if ends then redis.call('PEXPIREAT', KEYS[1], string.format('%.0f', ends)) end
  redis.call('SET', KEYS[1], ARGV[2], 'XX', 'KEEPTTL')
end
redis.pcall('ZREM', KEYS[2], ARGV[1])
if redis.call('PTTL', KEYS[1]) + 1 >= left then return 1 end -- rounding may cost a millisecond
-- Not call from here on: who may not publish, or not ask for the time, has restored it all the same.
local time, queue, told = redis.pcall('TIME'), redis.pcall('ZRANGE', KEYS[3], '0', '511'), 0
if time.err then return 1 end
local now = 4e15 + time[1] * 1000 + math.floor(time[2] / 1000)
for _, entry in ipairs(queue) do
  local ends = redis.pcall('ZSCORE', KEYS[3], entry .. '!')
  if type(ends) == 'string' and (tonumber(ends) or 0) >= now then
    local heard = redis.pcall('PUBLISH', ARGV[5] .. ':' .. entry, (told + 1) .. '? ' .. ARGV[1])
    if heard ~= 0 and type(heard) == 'number' then told = told + 1 end
    if told == 2 then break end
  end
end
return 1
