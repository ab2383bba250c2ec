<?php
declare(strict_types=1);

namespace Acme\Shop;

use Acme\Core\{Money, Tax as T};
use Psr\Log\LoggerInterface;
use Exception;
use function Acme\Core\total;

require_once __DIR__ . '/helpers.php';
include 'config.php';

const LIMIT = 10;

interface Sellable { public function price(): int; }

abstract class Cart extends Base implements Sellable
{
    public const MAX = 5;
    private array $items = [];
    protected ?string $name = null;

    public function __construct(private readonly string $owner, int $size = 1) {}
    public static function of(string ...$names): static { return new static(''); }
    private function secret(): void {}
    abstract protected function total(): int;
}

trait Counts { public int $count = 0; }
enum Colour: string { case Red = 'red'; case Green = 'green'; }
function helper(int $a): int { return $a; }
