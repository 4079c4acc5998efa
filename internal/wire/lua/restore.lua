-- Undoes a failed adoption: if the lock K holds ARGV[1], the adopter's value, puts back ARGV[2], which that replaced, to
-- expire when it would have. lua/adopt.lua noted that time in the register: never, or a time, and if it has passed, the
-- lock is deleted. If the note was lost with the register, the ttl stays as it is. In any case, a register with less than
-- ARGV[3] ms to live gets ARGV[4] ms.
-- Replies 1: restored or deleted; 0: the key holds another value; -1: there is no key.
if redis.call('PTTL', KEYS[2]) < tonumber(ARGV[3]) then redis.call('PEXPIRE', KEYS[2], ARGV[4]) end
local held = redis.call('GET', KEYS[1])
if held == false then return -1 end
if held ~= ARGV[1] then return 0 end
-- Not call: a register that was overwritten must not read as a lock that was.
local ends = redis.pcall('ZSCORE', KEYS[2], ARGV[1])
ends = type(ends) == 'string' and tonumber(ends)
if ends == 0 then
  redis.call('SET', KEYS[1], ARGV[2])
else
  -- The end before the value: in any other order an error in between could leave ARGV[2] without an end. XX: the lock may be gone by that.
  if ends then redis.call('PEXPIREAT', KEYS[1], string.format('%.0f', ends)) end
  redis.call('SET', KEYS[1], ARGV[2], 'XX', 'KEEPTTL')
end
redis.pcall('ZREM', KEYS[2], ARGV[1])
return 1
