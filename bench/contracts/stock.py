class Stock:
    """What a shop has, by article number."""

    def __init__(self):
        self.amounts = {}
        self.prices = {}

    def add(self, article, amount, price):
        if amount <= 0:
            raise ValueError("amount must be above zero")
        self.amounts[article] = self.amounts.get(article, 0) + amount
        self.prices[article] = price

    def take(self, article, amount):
        if amount <= 0:
            raise ValueError("amount must be above zero")
        have = self.amounts.get(article, 0)
        if have < amount:
            raise KeyError("there are only " + str(have))
        self.amounts[article] = have - amount
        return amount * self.prices[article]

    def value(self):
        total = 0
        for article, amount in self.amounts.items():
            total = total + amount * self.prices[article]
        return total
