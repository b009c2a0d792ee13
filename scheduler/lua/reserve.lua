-- Take tokens out of a bucket and hold them for a run. Behind bucket.lua.
-- KEYS[1]  hash, the bucket      KEYS[2]  sorted set, what is reserved and since when
-- ARGV     capacity, refill per hour, since when that is so in ms or 0, now in ms or '',
--          run id, tokens, the reservation's name in KEYS[2]
-- returns  0 when they are held, also from an earlier call; else the milliseconds until there are enough
local capacity, per_hour, since, tokens = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[6])
if redis.call('HEXISTS', KEYS[1], ARGV[5]) == 1 then
    return 0
end
local now = now_ms(ARGV[4])
local missing = missing_noted(KEYS[1], now, per_hour, since) + tokens * UNITS
local lacking = missing - capacity * UNITS
if lacking > 0 then
    return math.ceil(lacking / per_hour)
end
write(KEYS[1], missing, now, per_hour)
redis.call('HSET', KEYS[1], ARGV[5], tokens)
redis.call('ZADD', KEYS[2], string.format('%.0f', now), ARGV[7])
return 0
