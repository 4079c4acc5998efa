-- Stands before a script that grants the lock K. Unless this server has forgotten nothing for ARGV[#ARGV - 1] ms, a lock
-- that is free or holds ARGV[1] is not granted, and the reply is {'quarantined', ms left}.
-- The mark KEYS[#KEYS] says which server this is, and since when. ARGV[#ARGV] says what to do with it. '0': believe it;
-- '1': compare it with what the server says; '2': compare it, and this script was unknown to the server.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local id, since = string.match(redis.call('GET', KEYS[#KEYS]) or '', '^(%S+) (%d+)$')
since = tonumber(since)
local known = id and since <= now
if ARGV[#ARGV] ~= '0' or not known then
  local function told(section, field)
    local info = redis.pcall('INFO', section)
    return type(info) == 'string' and string.match(info, field) or nil
  end
  -- Drawn anew at every start and at every promotion of a replica. One that tells us
  -- nothing is another server where it has forgotten its scripts.
  local me = told('replication', 'master_replid:(%w+)') or told('server', 'run_id:(%w+)')
  local same = me == id or not me and ARGV[#ARGV] ~= '2'
  if not known or not same then
    since = now
    -- From its start on, if nothing but that start can have made it forget. Both ends of
    -- the uptime are floored to seconds.
    local up = told('server', 'uptime_in_seconds:(%d+)')
    local stats = told('commandstats', '.*')
    if up and told('replication', 'second_repl_offset:(%-?%d+)') == '-1' and stats
       and not string.find(stats, 'cmdstat_flush') and not string.find(stats, 'cmdstat_swapdb') then
      since = math.min(now, now - up * 1000 + 1000)
    end
    redis.call('SET', KEYS[#KEYS], (me or '?') .. ' ' .. string.format('%.0f', since))
  end
end
local left = since + ARGV[#ARGV - 1] - now
if left > 0 then
  local held = redis.call('GET', KEYS[1])
  if not held or held == ARGV[1] then return {'quarantined', left} end
end
