-- Reads the lock K and its register, changes nothing: {value, ms left, score}, with '' for what is not there.
return {redis.call('GET', KEYS[1]) or '', redis.call('PTTL', KEYS[1]), redis.call('ZSCORE', KEYS[2], 'f') or ''}
