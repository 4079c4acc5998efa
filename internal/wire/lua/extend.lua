-- If the lock K holds our value ARGV[1], gives it at least ARGV[2] ms to live. A lock with a register KEYS[2]: raises that to
-- ARGV[3] and, if it has less than ARGV[4] ms to live (absent: a day), gives it ARGV[5] ms (25 hours). Never shortens a ttl,
-- never gives one to a key that has none, and never creates the key.
-- Replies 1: extended; 0: the key holds another value; -1: there is no key.
local held = redis.call('GET', KEYS[1])
if held == false then return -1 end
if held ~= ARGV[1] then return 0 end
-- Also where nothing is to be gained: a script that has written is not refused for
-- want of memory, and ZADD would be.
if redis.call('PTTL', KEYS[1]) <= tonumber(ARGV[2]) then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
if not KEYS[2] then return 1 end
-- An error of the register must not read as one of the lock.
local raised = redis.pcall('ZADD', KEYS[2], 'GT', ARGV[3], 'f')
if type(raised) == 'table' and raised.err then return redis.error_reply('FENCE ' .. raised.err) end
if redis.call('PTTL', KEYS[2]) < (tonumber(ARGV[4]) or 86400000) then redis.call('PEXPIRE', KEYS[2], ARGV[5] or '90000000') end
return 1
