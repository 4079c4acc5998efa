-- Deletes the lock K if it holds our value, deleted or not gives a register with less than ARGV[5] ms to live (absent: a day) ARGV[6] ms (25 hours), and, unless ARGV[2] is empty or absent, announces the value to the first ARGV[4] (2) of the queue that hear it, with their number before it, on channel ARGV[2] .. ':' .. place; place ARGV[3], if there is one, goes to its end before. 1: deleted, 0: another's value, -1: nothing there.
-- Not call: a key of another type is another's, and its register is to get a life, too. Any other error says nothing about whose the key is.
local held = redis.pcall('GET', KEYS[1])
if type(held) == 'table' and not string.find(held.err, '^%-?WRONGTYPE') then return held end
-- Before the deletion: where this is refused, the error must not come from a lock that is released.
if redis.call('PTTL', KEYS[2]) < (tonumber(ARGV[5]) or 86400000) then redis.call('PEXPIRE', KEYS[2], ARGV[6] or '90000000') end
local verdict = -1
if held == ARGV[1] then
  redis.call('DEL', KEYS[1])
  verdict = 1
elseif held then
  verdict = 0
end
if (ARGV[2] or '') == '' then return verdict end
-- Not call from here on: who may not publish, or not ask for the time, has released all the same.
local most = tonumber(ARGV[4]) or 2
if most == 0 or redis.pcall('ZCARD', KEYS[3]) == 0 then return verdict end
local time = redis.pcall('TIME')
if time.err then return verdict end
local ms = time[1] * 1000 + math.floor(time[2] / 1000)
if (ARGV[3] or '') ~= '' then redis.pcall('ZADD', KEYS[3], 'XX', time[1] * 1000000 + time[2], ARGV[3]) end
local told, from = 0, 0
-- By sixteen: a whole fleet that was stopped may stand before the first who is alive.
local queue = redis.pcall('ZRANGE', KEYS[3], '0', '15')
while queue[1] and from < 512 do
  for _, place in ipairs(queue) do
    local over = redis.pcall('ZSCORE', KEYS[4], place)
    if type(over) == 'string' and tonumber(over) >= ms then
      -- The number of those who hear it skips the dead: their connections are gone.
      local heard = redis.pcall('PUBLISH', ARGV[2] .. ':' .. place, (told + 1) .. ' ' .. ARGV[1])
      if heard ~= 0 and type(heard) == 'number' then told = told + 1 end
      if told == most then return verdict end
    end
  end
  from = from + 16
  queue = redis.pcall('ZRANGE', KEYS[3], from, from + 15)
end
return verdict
