-- Tell what a bucket holds. Behind bucket.lua.
-- KEYS[1]  hash, the bucket      ARGV  capacity, refill per hour, since when that is so in ms or 0, now in ms or ''
-- returns  whole tokens, and milliseconds until it is full if nothing more is taken
local capacity, per_hour = tonumber(ARGV[1]), tonumber(ARGV[2])
local missing = missing_noted(KEYS[1], now_ms(ARGV[4]), per_hour, tonumber(ARGV[3]))
return {math.max(0, math.floor(capacity - missing / UNITS)), math.ceil(missing / per_hour)}
