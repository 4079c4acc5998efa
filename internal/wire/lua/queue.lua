-- Stands before a script that takes an entry in the queue of a lock. The queue is a sorted set. It has each entry, by its
-- ticket, and ENTRY!, by 4e15 plus the time in ms at which the entry expires, so that these stand behind all tickets.
-- After clock(), us and ms are the node's time. front(key, life, ours, ticket) returns the first entry that has not
-- expired, and when that expires; or ours alone, if it is first, by ticket or, if that is nil, by the ticket that it has.
-- It removes the entries before that one. No entry may expire later than life ms from now. After front, met says whether it
-- has come upon ours.
local us, ms, met
local function clock()
  if us then return end
  local time = redis.call('TIME')
  us = time[1] * 1000000 + time[2]
  ms = math.floor(us / 1000)
end
local function front(key, life, ours, ticket)
  while true do
    local queue = redis.call('ZRANGE', key, '0', '63', 'WITHSCORES')
    local over = {}
    for i = 1, #queue, 2 do over[queue[i]] = queue[i + 1] end
    for i = 1, #queue, 2 do
      local entry, at = queue[i], tonumber(queue[i + 1]) or 9e15
      if entry == ours then
        met = true
        if not ticket then return ours end
      elseif string.sub(entry, -1) == '!' then
        if at >= 4e15 then return ticket and ours or nil end
        redis.call('ZREM', key, entry)
      else
        if ticket and (ticket < at or ticket == at and ours < entry) then return ours end
        clock()
        -- Of a short queue all are among those that were read. One without an end would stand there for ever, and so would one with an end that lies too far ahead: a clock was set back.
        local ends = over[entry .. '!'] or #queue == 128 and redis.call('ZSCORE', key, entry .. '!')
        ends = (tonumber(ends or 0) or 0) - 4e15
        if ends >= ms and ends <= ms + life then return entry, ends end
        redis.call('ZREM', key, entry, entry .. '!')
      end
    end
    if #queue < 128 then return ticket and ours or nil end
  end
end
