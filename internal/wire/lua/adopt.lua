-- Replaces value ARGV[1] of the lock K, if the key holds it, by ARGV[2], which lives for at least ARGV[3] ms, and raises
-- the register to ARGV[4] (empty: does not raise it). The register gets a note of when ARGV[1] would have expired, for
-- lua/restore.lua; if it has less than ARGV[5] ms to live, it gets ARGV[6] ms, so that the note outlives ARGV[2]. Never
-- shortens a ttl; a key without one gets one.
-- Replies {1, 1}: replaced, and the register was raised; {1, 0}: replaced, but the register was not below ARGV[4], or was not
-- to be raised; {0, value}: the key holds another value; {-1}: there is no key.
local held = redis.call('GET', KEYS[1])
if held == false then return {-1} end
if held ~= ARGV[1] then return {0, held} end
local left = redis.call('PTTL', KEYS[1])
local ends = redis.pcall('PEXPIRETIME', KEYS[1])
if type(ends) ~= 'number' then
  -- Before Redis 7.0. The clock after the ttl: what passes in between makes the note late, never early.
  local time = redis.call('TIME')
  ends = left + time[1] * 1000 + math.floor(time[2] / 1000)
end
if left < 0 then ends = 0 end -- never
-- First, for it may be refused (another type, no memory), and then nothing is done.
local notes = redis.call('ZRANGE', KEYS[2], 0, 15)
local function expire()
  if redis.call('PTTL', KEYS[2]) < tonumber(ARGV[5]) then redis.call('PEXPIRE', KEYS[2], ARGV[6]) end
end
expire() -- also where there is no register yet: who may not do this makes none that would never expire
local moved = ARGV[4] == '' and 0 or redis.call('ZADD', KEYS[2], 'GT', 'CH', ARGV[4], 'f')
-- Notes of earlier adoptions. That of ARGV[1] stays: its own adoption may yet fail, and be undone after this one.
for _, member in ipairs(notes) do
  if member ~= 'f' and member ~= ARGV[1] then redis.call('ZREM', KEYS[2], member) end
end
redis.call('ZADD', KEYS[2], string.format('%.0f', ends), ARGV[2])
expire()
if left < tonumber(ARGV[3]) then
  redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
else
  redis.call('SET', KEYS[1], ARGV[2], 'KEEPTTL')
end
return {1, moved}
