-- Gives the register beside the lock K, if it has less than ARGV[1] ms to live, ARGV[2] ms; 1.
if redis.call('PTTL', KEYS[2]) < tonumber(ARGV[1]) then redis.call('PEXPIRE', KEYS[2], ARGV[2]) end
return 1
