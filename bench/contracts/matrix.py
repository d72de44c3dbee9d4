def transpose(matrix):
    rows = len(matrix)
    columns = len(matrix[0])
    result = []
    for column in range(columns):
        line = []
        for row in range(rows):
            line.append(matrix[row][column])
        result.append(line)
    return result


def multiply(left, right):
    rows = len(left)
    inner = len(right)
    columns = len(right[0])
    result = []
    for row in range(rows):
        line = []
        for column in range(columns):
            total = 0
            for i in range(inner):
                total = total + left[row][i] * right[i][column]
            line.append(total)
        result.append(line)
    return result


def identity(size):
    result = []
    for row in range(size):
        line = []
        for column in range(size):
            line.append(1 if row == column else 0)
        result.append(line)
    return result
