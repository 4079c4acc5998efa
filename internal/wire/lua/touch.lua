-- Gives the register of the lock K ARGV[2] ms to live (absent: 25 hours) if it has less than ARGV[1] ms (a day). Replies 1.
if redis.call('PTTL', KEYS[2]) < (tonumber(ARGV[1]) or 86400000) then redis.call('PEXPIRE', KEYS[2], ARGV[2] or '90000000') end
return 1
