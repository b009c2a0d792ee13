-- Give back what a run did not use of its reservation. Once: the reservation goes with it.
-- KEYS[1]  hash, the bucket      KEYS[2]  sorted set, what is reserved and since when
-- ARGV     run id, tokens that it is charged, the reservation's name in KEYS[2]
-- returns  1; 0 when nothing is reserved for the run any more
-- No clock is needed: max(0, missing - filled) comes to the same whether this is given back before or after.
local reserved = redis.call('HGET', KEYS[1], ARGV[1])
redis.call('ZREM', KEYS[2], ARGV[3])
if not reserved then
    return 0
end
redis.call('HDEL', KEYS[1], ARGV[1])
redis.call('HINCRBY', KEYS[1], 'missing', string.format('%.0f', (ARGV[2] - reserved) * 3600000))
return 1
