-- What is missing from a bucket by now; stands before the operations that need to know.
--
-- What is missing is kept, not what is left: so another capacity holds at once and loses nothing, whichever way it is
-- changed. It is an integer in units of 1/3,600,000 token: a token an hour is a unit a millisecond, and no sum is rounded.
-- A bucket that is not there is full: it was never used, it has filled again, or Redis lost it.
--
-- The hash:  missing, at   how much was missing when, in ms
--            per_hour      by how many tokens an hour it has filled since
--            <run id>      tokens that are held for the run
local UNITS = 3600000
local DAY_MS = 86400000

-- The caller's clock where it tells one, else the server's.
local function now_ms(told)
    if told ~= '' then
        return tonumber(told)
    end
    local time = redis.call('TIME')
    return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Another rate counts from `since`; where that is not known, 0 or before the bucket was last written, from now.
local function missing_now(key, now, per_hour, since)
    local bucket = redis.call('HMGET', key, 'missing', 'at', 'per_hour')
    if not bucket[1] then
        return 0, false
    end
    local was_per_hour = tonumber(bucket[3] or per_hour)
    local elapsed, by_new = math.max(0, now - bucket[2]), 0
    if since > tonumber(bucket[2]) then
        by_new = math.min(elapsed, math.max(0, now - since))
    end
    local filled = (elapsed - by_new) * was_per_hour + by_new * per_hour
    return math.max(0, bucket[1] - filled), was_per_hour ~= per_hour
end

local function write(key, missing, now, per_hour)
    local as_text = function(number) return string.format('%.0f', number) end
    redis.call('HSET', key, 'missing', as_text(missing), 'at', as_text(now), 'per_hour', per_hour)
    -- Once it has filled it need not be kept; a day more for what is held.
    redis.call('PEXPIRE', key, as_text(math.ceil(missing / per_hour) + DAY_MS))
end

-- What is missing now. A new rate is noted: nothing else changes by that.
local function missing_noted(key, now, per_hour, since)
    local missing, is_new_rate = missing_now(key, now, per_hour, since)
    if is_new_rate then
        write(key, missing, now, per_hour)
    end
    return missing
end
