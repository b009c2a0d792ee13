-- Keep a worker's report under the server's own time: who reads it needs no clock that agrees with the worker's.
-- KEYS[1]  hash, by worker: when in ms since the epoch, a space, the report
-- ARGV     the worker's name, the report, for how many seconds the hash outlives the last of its workers
local time = redis.call('TIME')
local now_ms = string.format('%d', time[1] * 1000 + math.floor(time[2] / 1000))
redis.call('HSET', KEYS[1], ARGV[1], now_ms .. ' ' .. ARGV[2])
redis.call('EXPIRE', KEYS[1], ARGV[3])
