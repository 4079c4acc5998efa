-- Goes before a script that enters the queue of places: a sorted set of each place by ticket, and of place .. '!' by when its time is over, which is 4e15 and the ms, behind all tickets. us and ms are the node's time. front(key, life, ours, ticket) returns the first place whose time is not over, and when that is over, but ours alone if it is first, by ticket or (nil) by the one that it has; it drops those before.
local us, ms
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
      local place, at = queue[i], tonumber(queue[i + 1]) or 9e15
      if place == ours then
        if not ticket then return ours end
      elseif string.sub(place, -1) == '!' then
        if at >= 4e15 then return ticket and ours or nil end
        redis.call('ZREM', key, place)
      else
        if ticket and (ticket < at or ticket == at and ours < place) then return ours end
        clock()
        -- Of a short queue all are among those that were read. One without an end would stand there for ever, and so would one with an end that lies too far ahead: a clock was set back.
        local ends = over[place .. '!'] or #queue == 128 and redis.call('ZSCORE', key, place .. '!')
        ends = (tonumber(ends or 0) or 0) - 4e15
        if ends >= ms and ends <= ms + life then return place, ends end
        redis.call('ZREM', key, place, place .. '!')
      end
    end
    if #queue < 128 then return ticket and ours or nil end
  end
end
