-- Extends many locks in one step: KEYS are #ARGV / 3 locks and as many registers; ARGV: of each lock our value, the ms that it is to live at least, and our fence. To a lock that holds its value it does what lua/extend.lua does; where the fence is empty, the register must only be there. One character for each lock: 1: done, 0: not all of it, for whatever reason.
local locks = #KEYS / 2
local held = redis.call('MGET', unpack(KEYS, 1, locks))
local all = redis.call('EXISTS', unpack(KEYS, locks + 1)) == locks
local done = {}
for i = 1, locks do
  done[i] = '0'
  if held[i] == ARGV[3 * i - 2] then
    local register, ttl, fence = KEYS[locks + i], ARGV[3 * i - 1], ARGV[3 * i]
    if redis.call('PTTL', KEYS[i]) <= tonumber(ttl) then redis.call('PEXPIRE', KEYS[i], ttl) end
    if fence == '' then
      if all or redis.call('EXISTS', register) == 1 then done[i] = '1' end
    elseif type(redis.pcall('ZADD', register, 'GT', fence, 'f')) == 'number' then
      if redis.call('PTTL', register) < 86400000 then redis.call('PEXPIRE', register, '90000000') end
      done[i] = '1'
    end
  end
end
return table.concat(done)
