-- Deletes the lock K if it holds our value, deleted or not gives a register with less than ARGV[2] ms to live ARGV[3] ms, and announces the value on channel ARGV[4] unless that is empty; 1: deleted, 0: another's value, -1: nothing there.
-- Not call: a key of another type is another's, and its register is to get a life, too.
local held = redis.pcall('GET', KEYS[1])
local verdict = -1
if held == ARGV[1] then
  redis.call('DEL', KEYS[1])
  verdict = 1
elseif held then
  verdict = 0
end
if redis.call('PTTL', KEYS[2]) < tonumber(ARGV[2]) then redis.call('PEXPIRE', KEYS[2], ARGV[3]) end
-- Not call: a user who may not publish has released all the same.
if ARGV[4] ~= '' then redis.pcall('PUBLISH', ARGV[4], ARGV[1]) end
return verdict
