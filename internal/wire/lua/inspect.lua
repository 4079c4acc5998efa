-- Reads the lock K, its register and its queue, and changes nothing.
-- Replies {value, ms to live, token, {entries, first to last}}, with '' for what does not exist. Entries that have
-- expired are left out, and so are all behind the hundredth member of the queue.
local time = redis.call('TIME')
local now = 4e15 + time[1] * 1000 + math.floor(time[2] / 1000)
local entries = {}
for _, entry in ipairs(redis.call('ZRANGE', KEYS[3], 0, 99)) do
  if string.sub(entry, -1) ~= '!' and (tonumber(redis.call('ZSCORE', KEYS[3], entry .. '!') or 0) or 0) >= now then entries[#entries + 1] = entry end
end
return {redis.call('GET', KEYS[1]) or '', redis.call('PTTL', KEYS[1]), redis.call('ZSCORE', KEYS[2], 'f') or '', entries}
