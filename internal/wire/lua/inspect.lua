-- Reads the lock K, its register and its queue, changes nothing: {value, ms left, score, {places, first to last}}, with '' for what is not there. Places whose time is over are left out, and all beyond the hundredth.
local time = redis.call('TIME')
local now = 4e15 + time[1] * 1000 + math.floor(time[2] / 1000)
local places = {}
for _, place in ipairs(redis.call('ZRANGE', KEYS[3], 0, 99)) do
  if string.sub(place, -1) ~= '!' and (tonumber(redis.call('ZSCORE', KEYS[3], place .. '!') or 0) or 0) >= now then places[#places + 1] = place end
end
return {redis.call('GET', KEYS[1]) or '', redis.call('PTTL', KEYS[1]), redis.call('ZSCORE', KEYS[2], 'f') or '', places}
