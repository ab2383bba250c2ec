using System;
using System.Collections.Generic;
using static System.Math;
using Json = Newtonsoft.Json;
global using Acme.Core;

namespace Acme.Shop;

public delegate void Changed(object sender, int now);

public interface IOrders { int Count { get; } void Add(Order order); }

[Serializable]
public sealed class Orders<T> : IOrders where T : class
{
    public const int Limit = 10;
    private readonly List<T> items = new();
    public event Changed OnChanged;

    public Orders(int size) : base(size) { }
    public int Count => items.Count;
    public string Name { get; private set; } = "";
    public T this[int index] => items[index];
    void Secret() { }
    protected internal async Task<int> Save(string path, bool force = false) { return 1; }
    public static Orders<T> operator +(Orders<T> a, Orders<T> b) => a;
    private enum Kind { Open, Closed = 2 }
}

public record Order(string Id, decimal Price);
internal struct Pair { public int A; }
public enum Colour { Red, Green }
