def total(values):
    result = 0
    for value in values:
        result = result + value
    return result


def average(values):
    if not values:
        return 0
    return total(values) / len(values)


def largest(values):
    best = values[0]
    for value in values:
        if value > best:
            best = value
    return best


def smallest(values):
    best = values[0]
    for value in values:
        if value < best:
            best = value
    return best
