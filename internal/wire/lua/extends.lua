-- Extends many locks in one step. KEYS are n locks and then the registers of those that have one; ARGV has three arguments for
-- each lock: our value, the ms that it lives at least, and our fence; ARGV[4] and ARGV[5] of lua/extend.lua may follow once
-- for all. A lock that holds its value is treated as there; with an empty fence, the register is not raised and must only
-- exist; with the fence -, the lock has no register.
-- Replies one character for each lock: 1: extended; 0: not or only in part, for whatever reason.
local locks = math.floor(#ARGV / 3)
local least, given = tonumber(ARGV[3 * locks + 1]) or 86400000, ARGV[3 * locks + 2] or '90000000'
local held = redis.call('MGET', unpack(KEYS, 1, locks))
local all = #KEYS > locks and redis.call('EXISTS', unpack(KEYS, locks + 1)) == #KEYS - locks
local done, registers = {}, locks
for i = 1, locks do
  local ttl, fence, register = ARGV[3 * i - 1], ARGV[3 * i], nil
  if fence ~= '-' then
    registers = registers + 1
    register = KEYS[registers]
  end
  done[i] = '0'
  if held[i] == ARGV[3 * i - 2] then
    if redis.call('PTTL', KEYS[i]) <= tonumber(ttl) then redis.call('PEXPIRE', KEYS[i], ttl) end
    if not register then
      done[i] = '1'
    elseif fence == '' then
      if all or redis.call('EXISTS', register) == 1 then done[i] = '1' end
    elseif type(redis.pcall('ZADD', register, 'GT', fence, 'f')) == 'number' then
      if redis.call('PTTL', register) < least then redis.call('PEXPIRE', register, given) end
      done[i] = '1'
    end
  end
end
return table.concat(done)
